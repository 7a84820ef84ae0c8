# One image for every container of pillar: the static binary, and the programs that any
# role runs. The role is the first argument. There is no shell and no package manager in it.
#
# Base of the programs: Debian 12, because the lab tests its very packages. Which files of
# the packages are copied is decided by deploy/image, here and for the lab's image. Its mkfs
# make nothing that Linux 5.15 cannot mount: ext4 by the defaults of e2fsprogs 1.47.0 in
# Debian, XFS by the profile lts_5.15.conf that xfsprogs ships.
#
# ZFS's programs come from ZFS_SUITE, because Debian 12's own are 2.1. Those of bookworm-
# backports are 2.3: they serve the modules that hosts have, see docs/operations.md.

ARG GO_IMAGE=docker.io/library/golang:1.26-bookworm
ARG DEBIAN_IMAGE=docker.io/library/debian:bookworm-slim

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -o /closure ./deploy/image/closure
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath \
	-ldflags "-s -w -X github.com/pillar-csi/pillar/roles/telemetry.Version=$VERSION" -o /pillar .

FROM ${DEBIAN_IMAGE} AS tools
COPY deploy/image/packages.txt /packages.txt
ARG ZFS_SUITE=bookworm-backports
RUN echo "deb http://deb.debian.org/debian $ZFS_SUITE contrib" >/etc/apt/sources.list.d/zfs.list && \
	printf 'Package: src:zfs-linux\nPin: release n=%s\nPin-Priority: 990\n' "$ZFS_SUITE" >/etc/apt/preferences.d/zfs && \
	apt-get update && \
	DEBIAN_FRONTEND=noninteractive xargs -a /packages.txt apt-get install -y --no-install-recommends
COPY --from=build /closure /closure
RUN ["/closure", "-out", "/image"]

FROM scratch
COPY --from=tools /image /
COPY --from=build /pillar /pillar
ENV PATH=/usr/sbin:/usr/bin
ENTRYPOINT ["/pillar"]
