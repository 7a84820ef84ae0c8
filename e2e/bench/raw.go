package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// raw writes configfs as a plain loop does, and collects what failed: nothing is compared,
// claimed or remembered, nor read back unless it checks.
type raw struct {
	checks bool // reads every write back through a fresh open, and claims a device that it enables
	failed []error
}

const nvmetDir = "/sys/kernel/config/nvmet"

func (r *raw) do(err error) {
	if err != nil {
		r.failed = append(r.failed, err)
	}
}

func (r *raw) mkdir(path string) { r.do(os.Mkdir(path, 0o755)) }

func (r *raw) set(path, value string) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		r.do(err)
		return
	}
	_, err = f.WriteString(value)
	r.do(errors.Join(err, f.Close()))
	if r.checks {
		got, err := os.ReadFile(path)
		if err == nil && strings.TrimRight(string(got), " \n") != value {
			err = fmt.Errorf("%s reads %q after %q", path, got, value)
		}
		r.do(err)
	}
}

func (r *raw) symlink(target, path string) {
	r.do(os.Symlink(target, path))
	if r.checks {
		_, err := os.Lstat(path)
		r.do(err)
	}
}

// enable enables the namespace, under an exclusive open of its device if it checks.
func (r *raw) enable(ns, device string) {
	if r.checks {
		claim, err := os.OpenFile(device, os.O_RDONLY|syscall.O_EXCL, 0)
		r.do(err)
		defer claim.Close()
	}
	r.set(filepath.Join(ns, "enable"), "1")
}

func (r *raw) port() string { return nvmetDir + "/ports/65535" }

// listen makes the port.
func (r *raw) listen() {
	r.mkdir(r.port())
	for _, a := range [][2]string{{"addr_trtype", "tcp"}, {"addr_adrfam", "ipv4"}, {"addr_traddr", "127.0.0.1"}, {"addr_trsvcid", "4421"}} {
		r.set(filepath.Join(r.port(), a[0]), a[1])
	}
	r.mkdir(nvmetDir + "/hosts/" + hostNQN)
}

func (r *raw) subsystem(name string) string {
	return nvmetDir + "/subsystems/nqn.2014-08.org.nvmexpress:" + name
}

// prepare makes what an export of the agent is, but for its link.
func (r *raw) prepare(name, device string) {
	dir := r.subsystem(name)
	ns := filepath.Join(dir, "namespaces", "1")
	r.mkdir(dir)
	r.set(filepath.Join(dir, "attr_allow_any_host"), "0")
	r.set(filepath.Join(dir, "attr_serial"), "bench")
	r.mkdir(ns)
	r.set(filepath.Join(ns, "device_path"), device)
	r.set(filepath.Join(ns, "device_uuid"), "0d1f9c1e-0000-4000-8000-000000000001")
	r.set(filepath.Join(ns, "device_nguid"), "0d1f9c1e-0000-4000-8000-000000000001")
	r.symlink(nvmetDir+"/hosts/"+hostNQN, filepath.Join(dir, "allowed_hosts", hostNQN))
	r.enable(ns, device)
}

func (r *raw) link(name string) {
	dir := r.subsystem(name)
	r.symlink(dir, filepath.Join(r.port(), "subsystems", filepath.Base(dir)))
}

func (r *raw) err() error {
	if len(r.failed) == 0 {
		return nil
	}
	return fmt.Errorf("raw: %w", errors.Join(r.failed...))
}
