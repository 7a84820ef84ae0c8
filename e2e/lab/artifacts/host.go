package artifacts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// HostPackages are the Debian packages the lab needs on the machine itself. They are all that
// the lab ever installs there.
var HostPackages = []string{
	"mmdebstrap", "debian-archive-keyring", "dpkg-dev", "kmod", "iproute2", "util-linux", "e2fsprogs",
	"gcc", "libc6-dev", "make", "flex", "bison", "bc", "xz-utils", "perl", "cpio",
}

// QEMUPackages are needed on the machine for the QEMU kind only.
var QEMUPackages = []string{"qemu-system-x86"}

// InstallHost installs those of the packages that are missing, after saying which. Without
// root it says what is missing and what to type.
func (c *Cache) InstallHost(ctx context.Context, packages []string) error {
	missing, err := missingPackages(ctx, packages)
	if err != nil || len(missing) == 0 {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("packages are missing; as root: %s", strings.Join(installCommand(missing), " "))
	}
	release, err := c.lock(ctx, "host-packages")
	if err != nil {
		return err
	}
	defer release()
	if missing, err = missingPackages(ctx, missing); err != nil || len(missing) == 0 {
		return err // another process installed them meanwhile
	}
	install := func() error {
		_, err := output(ctx, "", nil, installCommand(missing)...)
		return err
	}
	if err := c.during("installing on this machine: "+strings.Join(missing, " "), install); err == nil {
		return nil
	}
	err = c.during("updating this machine's package indexes", func() error {
		_, err := output(ctx, "", nil, "apt-get", "update")
		return err
	})
	if err != nil {
		return err
	}
	return c.during("installing on this machine: "+strings.Join(missing, " "), install)
}

func installCommand(packages []string) []string {
	return append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, packages...)
}

// missingPackages returns those packages dpkg does not list as installed. dpkg-query fails when
// it has never heard of one, and lists the others all the same.
func missingPackages(ctx context.Context, packages []string) ([]string, error) {
	cmd := command(ctx, "", nil, append([]string{"dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"}, packages...)...)
	list, err := cmd.Output()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("the lab needs a Debian machine: %w", err)
	}
	return notInstalled(string(list), packages), nil
}

func notInstalled(list string, packages []string) []string {
	var missing []string
	for _, p := range packages {
		if !strings.Contains("\n"+list, "\n"+p+" installed\n") {
			missing = append(missing, p)
		}
	}
	return missing
}
