package artifacts

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// HostPackages are the Debian packages the lab needs on the machine itself. They are all that
// the lab ever installs there.
var HostPackages = []string{
	"mmdebstrap", "debian-archive-keyring", "dpkg-dev", "kmod", "iproute2", "util-linux", "e2fsprogs",
	"gcc", "libc6-dev", "make", "flex", "bison", "bc", "xz-utils", "perl",
}

// QEMUPackages are needed on the machine for the QEMU kind only.
var QEMUPackages = []string{"qemu-system-x86"}

// InstallHost installs those of the packages that are missing, after saying which. Without
// root it says what is missing and what to type.
func InstallHost(ctx context.Context, log *Cache, packages []string) error {
	missing := missingPackages(ctx, packages)
	if len(missing) == 0 {
		return nil
	}
	install := installCommand(missing)
	if os.Geteuid() != 0 {
		return fmt.Errorf("packages %s are not installed; as root: %s", strings.Join(missing, " "), strings.Join(install, " "))
	}
	release, err := log.lock(ctx, "host-packages")
	if err != nil {
		return err
	}
	defer release()
	if missing = missingPackages(ctx, missing); len(missing) == 0 {
		return nil // another process installed them meanwhile
	}
	log.printf("installing on this machine: %s", strings.Join(missing, " "))
	install = installCommand(missing)
	if _, err := output(ctx, "", nil, install...); err == nil {
		return nil
	}
	log.printf("updating this machine's package indexes first")
	if _, err := output(ctx, "", nil, "apt-get", "update"); err != nil {
		return err
	}
	if _, err := output(ctx, "", nil, install...); err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	return nil
}

// missingPackages returns those packages dpkg does not list as installed.
func missingPackages(ctx context.Context, packages []string) []string {
	var missing []string
	for _, p := range packages {
		status, err := output(ctx, "", nil, "dpkg-query", "-W", "-f", "${db:Status-Status}", p)
		if err != nil || status != "installed" {
			missing = append(missing, p)
		}
	}
	return missing
}

func installCommand(packages []string) []string {
	return append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, packages...)
}
