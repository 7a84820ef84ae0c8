package namespace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Init does not return when this process was started by Enter as pid 1 of a lab. Every
// program that calls Enter calls Init at the start of its main.
func Init() {
	if os.Args[0] != initArg {
		return
	}
	code, err := runInit(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = 1
	}
	result := os.NewFile(3, "result")
	if os.Getenv(KeepVar) == "1" {
		if err := Keep(); err != nil {
			fmt.Fprintln(os.Stderr, "lab:", err)
		}
		fmt.Fprintf(result, "%d kept", code)
		result.Close()
		rest()
	}
	fmt.Fprint(result, code)
	os.Exit(0) // the kernel kills what is left in the namespace
}

func runInit(argv []string) (int, error) {
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	if err := mounts(); err != nil {
		return 0, err
	}
	if err := network(); err != nil {
		return 0, fmt.Errorf("lab network: %w", err)
	}
	return supervise(argv)
}

// mounts keeps the lab's mounts to itself and shows it its own processes.
func mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	return nil
}

func network() error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Bridge}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make bridge: %w", err)
	}
	for _, text := range []string{BridgeNetwork, ServiceAddress} {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(bridge, address); err != nil {
			return fmt.Errorf("address %s: %w", text, err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkSetUp(bridge)); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// supervise runs the command, passes on requests to end, and reaps orphans until it is over.
func supervise(argv []string) (int, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 4)
	defer signal.Stop(signals)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	process, err := os.StartProcess(path, argv, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", argv[0], err)
	}
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM { // a terminal sends the others to the command as well
				syscall.Kill(process.Pid, syscall.SIGTERM)
			}
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return 0, fmt.Errorf("wait: %w", err)
		}
		if pid == process.Pid && (status.Exited() || status.Signaled()) {
			return shellCode(status), nil
		}
	}
}

func shellCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// rest reaps until Stop asks this process to end, and everything with it. It lets go of the
// terminal or pipe the user has long turned away from.
func rest() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() {
		<-asked
		os.Exit(0)
	}()
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		for fd := range 3 {
			unix.Dup2(int(null.Fd()), fd)
		}
	}
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); errors.Is(err, syscall.ECHILD) {
			os.Exit(0) // nothing is left to keep
		}
	}
}
