# One image for every container of pillar: the static binary, and the programs that any
# role runs. The role is the first argument.
#
# Base: Debian 12, because the lab tests its very packages: their closure is the tools
# layer of the lab's image. Its mkfs make nothing that Linux 5.15 cannot mount: ext4 by the
# defaults of e2fsprogs 1.47.0, XFS by the profile lts_5.15.conf that xfsprogs ships.
# Nothing in pillar starts a shell; the base still holds one, and a package manager, until
# the image is cut down to the closure.

FROM docker.io/library/golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath \
	-ldflags "-s -w -X github.com/pillar-csi/pillar/roles/telemetry.Version=$VERSION" -o /pillar .

FROM docker.io/library/debian:bookworm-slim
RUN --mount=type=bind,source=deploy/image/packages.txt,target=/packages.txt \
	apt-get update && \
	DEBIAN_FRONTEND=noninteractive xargs -a /packages.txt apt-get install -y --no-install-recommends && \
	rm -rf /var/lib/apt/lists/*
COPY deploy/image/lvm.conf /etc/lvm/lvm.conf
COPY --from=build /pillar /pillar
ENTRYPOINT ["/pillar"]
