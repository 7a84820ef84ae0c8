package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pillar-csi/pillar/e2e/lab"
	"github.com/pillar-csi/pillar/e2e/lab/agent"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// testModules are what kernel tests find loaded. ZFS is there as well if `lab build zfs` was
// run, but not loaded: tests that need it load it (hosttest.Need), the others save the second.
var testModules = []string{"dm-mod", "nvmet", "nvmet-tcp", "nvme-tcp"}

// execTest runs a test binary in a guest of its own and returns its exit code. It is called
// in the package's directory, as go test does. Outside of a lab it first makes one, so many
// packages can run at once.
func execTest(ctx context.Context, argv []string) (int, error) {
	if len(argv) == 0 {
		return 2, errors.New(usage)
	}
	if os.Getenv(namespace.RunVar) == "" {
		return onceMore(filepath.Base(argv[0]), func() (int, error) {
			return enter(ctx, false, append([]string{"/proc/self/exe", "exec"}, argv...)...)
		})
	}
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	cpu, err := nextCPU()
	if err != nil {
		return 1, err
	}
	l, err := lab.Open(ctx, lab.Config{Log: quiet{}})
	if err != nil {
		return 1, err
	}
	defer l.Close()
	spec, err := testGuest(argv[0], cpu)
	if err != nil {
		return 1, err
	}
	if spec.ZFS, err = l.HasZFS(ctx); err != nil {
		return 1, err
	}
	if spec.ZFS {
		spec.MemoryMB = 768 // its cache and threads take some 100 MB
	}
	guest, err := l.Boot(ctx, spec)
	if err != nil {
		return 1, err
	}
	return runTest(ctx, guest, argv)
}

// lostCode ends a run whose guest was lost, EX_TEMPFAIL of sysexits.h. No test binary ends with it.
const lostCode = 75

// onceMore runs a test binary whose guest was lost a second time: user-mode and emulated kernels
// die for reasons of their own about once in a hundred runs, and what a test does to a kernel it
// does again. The first loss is told, go test hides that of a package that passes then, so it
// is in the file `make kernel` shows, too; its console is kept as that of any run that failed.
func onceMore(what string, run func() (int, error)) (int, error) {
	code, err := run()
	if code != lostCode {
		return code, err
	}
	note := fmt.Sprintf("lab: %s: the guest was lost at %s, running it once more", what, time.Now().Format(time.TimeOnly))
	fmt.Fprintln(os.Stderr, note)
	if err := appendLine(os.Getenv(lostVar), note); err != nil {
		return 1, err
	}
	return run()
}

// lostVar names a file that gets a line for each guest that was lost.
const lostVar = "PILLAR_LAB_LOST"

func appendLine(file, line string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// testGuest is a guest that sees the repository and the test binary's directory where the
// machine has them.
func testGuest(binary string, cpu int) (lab.GuestSpec, error) {
	repo, err := artifacts.ModuleRoot(".")
	if err != nil {
		return lab.GuestSpec{}, err
	}
	binary, err = filepath.Abs(binary)
	if err != nil {
		return lab.GuestSpec{}, err
	}
	dir := filepath.Dir(binary)
	return lab.GuestSpec{
		Name: "test", Address: "10.66.0.11", CPU: cpu, MemoryMB: 512,
		Disks:   []string{"1GiB", "1GiB"},
		ShareRO: map[string]string{repo: repo},
		Share:   map[string]string{dir: dir},
		Modules: testModules,
	}, nil
}

func runTest(ctx context.Context, guest *lab.Guest, argv []string) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	binary, err := filepath.Abs(argv[0])
	if err != nil {
		return 1, err
	}
	c := agent.Command{Argv: append([]string{binary}, argv[1:]...), Dir: dir,
		Env: append(testEnv(os.Environ()), "PILLAR_LAB_DISKS="+strings.Join(guest.Disks, ","))}
	err = guest.Command(ctx, os.Stdout, c)
	var exit *lab.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.Code, nil
	case lab.Lost(err):
		return lostCode, err
	case err != nil:
		return 1, err
	}
	return 0, nil
}

// testEnv are the variables a test may want from the caller's environment.
func testEnv(environ []string) []string {
	var env []string
	for _, e := range environ {
		if strings.HasPrefix(e, "PILLAR_") || strings.HasPrefix(e, "GOTRACEBACK=") || strings.HasPrefix(e, "GOMAXPROCS=") {
			env = append(env, e)
		}
	}
	return env
}

// nextCPU spreads the guests of packages that are tested at once over the CPUs.
func nextCPU() (int, error) {
	dir, err := artifacts.Dir()
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "next-cpu"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return 0, err
	}
	var text [16]byte
	n, _ := f.ReadAt(text[:], 0)
	cpu, _ := strconv.Atoi(string(text[:n])) // an empty file is 0
	_, err = f.WriteAt([]byte(strconv.Itoa((cpu+1)%runtime.NumCPU())), 0)
	return cpu, err
}

// quiet drops the lab's progress lines: a test's output is the test's.
type quiet struct{}

func (quiet) Write(p []byte) (int, error) {
	if os.Getenv("PILLAR_LAB_VERBOSE") != "" {
		return fmt.Fprint(os.Stderr, string(p))
	}
	return len(p), nil
}
