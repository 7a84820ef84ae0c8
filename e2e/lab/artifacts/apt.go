package artifacts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// suite is the Debian release of the guests, whatever the machine itself runs.
const suite = "bookworm"

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt is a private apt below the cache: it reads the machine's mirrors and proxy settings and
// changes nothing of the machine.
type apt struct {
	dir     string
	sources string   // path of its sources.list, also mmdebstrap's
	options []string // "Acquire::...=..." taken over from the machine
}

// apt sets up the private apt and fetches the indexes once per cache.
func (c *Cache) apt(ctx context.Context) (*apt, error) {
	release, err := c.lock(ctx, "apt")
	if err != nil {
		return nil, err
	}
	defer release()
	a := &apt{dir: filepath.Join(c.Dir, "apt")}
	a.sources = filepath.Join(a.dir, "etc", "sources.list")
	if a.options, err = machineOptions(ctx); err != nil {
		return nil, err
	}
	done := filepath.Join(a.dir, "updated")
	if _, err := os.Stat(done); err == nil {
		return a, nil
	}
	if err := a.write(ctx); err != nil {
		return nil, fmt.Errorf("set up the private apt: %w", err)
	}
	if err := c.update(ctx, a); err != nil {
		return nil, err
	}
	return a, os.WriteFile(done, nil, 0o644)
}

func (c *Cache) update(ctx context.Context, a *apt) error {
	return c.during("fetching Debian's package indexes ("+suite+")", func() error {
		_, err := a.get(ctx, a.dir, "update")
		return err
	})
}

func (a *apt) write(ctx context.Context) error {
	for _, dir := range []string{"etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return err
		}
	}
	targets, err := output(ctx, "", nil, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
	if err != nil {
		return err
	}
	return writeFiles(a.dir, map[string]string{
		"etc/sources.list": sourcesList(targets),
		"state/status":     "",
		"apt.conf": fmt.Sprintf(`Dir %q;
Dir::State "state";
Dir::State::status %q;
Dir::Cache "cache";
Dir::Etc "etc";
Dir::Etc::parts %q;
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
`, a.dir+"/", filepath.Join(a.dir, "state/status"), filepath.Join(a.dir, "etc/apt.conf.d")),
	})
}

// sourcesList names the guests' suites on the machine's own mirrors, given as lines of
// "URI release"; a suite the machine does not use comes from deb.debian.org.
func sourcesList(targets string) string {
	mirror, security := "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
	for line := range strings.Lines(targets) {
		uri, release, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case release == suite:
			mirror = strings.TrimSuffix(uri, "/")
		case release == suite+"-security":
			security = strings.TrimSuffix(uri, "/")
		}
	}
	var list strings.Builder
	for _, s := range []struct{ uri, suite string }{
		{mirror, suite}, {mirror, suite + "-updates"}, {security, suite + "-security"}, {mirror, suite + "-backports"},
	} {
		fmt.Fprintf(&list, "deb [signed-by=%s] %s %s main contrib\n", keyring, s.uri, s.suite)
	}
	return list.String()
}

// machineOptions returns the machine's proxy and date settings of apt as NAME=VALUE.
func machineOptions(ctx context.Context) ([]string, error) {
	dump, err := output(ctx, "", nil, "apt-config", "dump", "--format", "%F=%v%n", "Acquire")
	if err != nil {
		return nil, err
	}
	return acquireOptions(dump), nil
}

func acquireOptions(dump string) []string {
	var options []string
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		name, value, _ := strings.Cut(line, "=")
		wanted := strings.HasPrefix(name, "Acquire::http") || strings.HasPrefix(name, "Acquire::Check-")
		if wanted && value != "" {
			options = append(options, line)
		}
	}
	sort.Strings(options)
	return options
}

// get runs apt-get with the private configuration in dir.
func (a *apt) get(ctx context.Context, dir string, args ...string) (string, error) {
	argv := []string{"apt-get", "-q"}
	for _, o := range a.options {
		argv = append(argv, "-o", o)
	}
	return output(ctx, dir, []string{"APT_CONFIG=" + filepath.Join(a.dir, "apt.conf")}, append(argv, args...)...)
}

// deb returns the path of a package in the cache, downloading it first if no version of it is
// there. A spec is NAME, NAME=VERSION or NAME/SUITE.
func (c *Cache) deb(ctx context.Context, spec string) (string, error) {
	name, version, _ := strings.Cut(spec, "=")
	name, _, _ = strings.Cut(name, "/")
	pattern := name + "_*.deb"
	if version != "" { // apt writes a colon of an epoch as %3a
		pattern = name + "_" + strings.ReplaceAll(version, ":", "%3a") + "_*.deb"
	}
	dir := filepath.Join(c.Dir, "debs")
	if found, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(found) > 0 {
		return newest(found), err
	}
	if c.Offline {
		return "", fmt.Errorf("package %s: %w, run `lab build` first", spec, ErrMissing)
	}
	a, err := c.apt(ctx)
	if err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(c.Dir, ".tmp-deb-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := c.download(ctx, a, tmp, spec); err != nil {
		return "", err
	}
	got, err := filepath.Glob(filepath.Join(tmp, name+"_*.deb"))
	if err != nil || len(got) != 1 {
		return "", fmt.Errorf("download %s: got %q, want one file", spec, got)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(got[0]))
	return path, os.Rename(got[0], path)
}

// download fetches a package into dir. Indexes of an older cache name versions that have left
// the mirror; then they are fetched again.
func (c *Cache) download(ctx context.Context, a *apt, dir, spec string) error {
	try := func() error {
		_, err := a.get(ctx, dir, "download", spec)
		return err
	}
	if err := c.during("downloading package "+spec, try); err == nil {
		return nil
	}
	if err := c.update(ctx, a); err != nil {
		return err
	}
	return c.during("downloading package "+spec+" again", try)
}

func newest(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	sort.Strings(paths)
	return paths[len(paths)-1]
}
