package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/nvmet"
)

// exportRow compares exporting and unexporting with the raw configfs operations that have
// the same effect: what comparing first, reading back and the claim cost. Each value is
// opened three times instead of once, and the port is looked for each time.
var exportRow = row{name: "nvmet_export_vs_raw_configfs", goal: 10, work: exportAll, baseline: exportRaw}

const exports = 20

func exportAll(ctx context.Context, disk string) error {
	dir, err := os.MkdirTemp("", "identity")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := nvmet.New(configfs.New(""), nvmet.Config{IdentityDir: dir})
	var all []error
	for i := range exports {
		_, err := t.Export(ctx, transport.Export{
			Kind: transport.NVMeTCP, Volume: fmt.Sprintf("bench/pvc-%d", i), DevicePath: disk,
			Portal: transport.Portal{Address: "127.0.0.1", Port: 4420}, ACL: true,
		}, blockdev.Hold)
		all = append(all, err)
	}
	for i := range exports {
		all = append(all, t.Unexport(ctx, fmt.Sprintf("bench/pvc-%d", i), disk))
	}
	return errors.Join(all...)
}

// exportRaw does by hand what an export needs at the very least.
func exportRaw(_ context.Context, disk string) error {
	r := &raw{root: "/sys/kernel/config/nvmet"}
	port := r.root.Path("ports", "65535")
	r.mkdir(port)
	for name, value := range map[string]string{"addr_trtype": "tcp", "addr_adrfam": "ipv4", "addr_traddr": "127.0.0.1", "addr_trsvcid": "4421"} {
		r.set(filepath.Join(port, name), value)
	}
	nqn := func(i int) string { return fmt.Sprintf("nqn.2014-08.org.nvmexpress:bench-%d", i) }
	for i := range exports {
		dir := r.root.Path("subsystems", nqn(i))
		ns := filepath.Join(dir, "namespaces", "1")
		r.mkdir(dir)
		r.set(filepath.Join(dir, "attr_allow_any_host"), "0")
		r.set(filepath.Join(dir, "attr_serial"), "bench")
		r.mkdir(ns)
		r.set(filepath.Join(ns, "device_path"), disk)
		r.set(filepath.Join(ns, "device_uuid"), "0d1f9c1e-0000-4000-8000-000000000001")
		r.set(filepath.Join(ns, "enable"), "1")
		r.do(os.Symlink(dir, filepath.Join(port, "subsystems", nqn(i))))
	}
	for i := range exports {
		dir := r.root.Path("subsystems", nqn(i))
		r.do(os.Remove(filepath.Join(port, "subsystems", nqn(i))))
		r.set(filepath.Join(dir, "namespaces/1/enable"), "0")
		r.do(os.Remove(filepath.Join(dir, "namespaces/1")))
		r.do(os.Remove(dir))
	}
	r.do(os.Remove(port))
	return errors.Join(r.failed...)
}

// raw writes configfs and collects what failed.
type raw struct {
	root   host.Root
	failed []error
}

func (r *raw) do(err error) {
	if err != nil {
		r.failed = append(r.failed, err)
	}
}

func (r *raw) mkdir(path string) { r.do(os.Mkdir(path, 0o755)) }

func (r *raw) set(path, value string) { r.do(os.WriteFile(path, []byte(value), 0)) }
