package dryrun_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
)

var update = flag.Bool("update", false, "write testdata/*.golden from what the code does now")

// golden compares text with testdata/name.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// The shapes that people and programs read. The second is a promise: fields are only added.
func TestReport(t *testing.T) {
	reports := map[string]dryrun.Report{"ready": ready(), "lacking": lacking()}
	for name, r := range reports {
		t.Run(name, func(t *testing.T) {
			var text, json strings.Builder
			if err := errors.Join(r.Text(&text), r.JSON(&json)); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", text.String())
			golden(t, name+".json", json.String())
		})
	}
}

func ready() dryrun.Report {
	r := dryrun.Report{
		Version: 1, Agent: "v0.1.0", Kernel: "6.1.0-28-amd64", Config: "agent.yaml", Ready: true,
		Pools: []dryrun.PoolFound{
			{Name: "vg0", Backend: "lvm-lv", TotalBytes: 100 << 30, AvailableBytes: 25 << 30, Volumes: 3},
			{Name: "tank", Backend: "zfs-zvol", TotalBytes: 3 << 40, AvailableBytes: 1 << 40},
		},
		Exports: []string{"nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1"},
	}
	r.Step("pod start", "load", "nvmet_tcp")
	r.Step("agent start", "mount", "configfs at /sys/kernel/config")
	r.Step("agent start", "listen", "on TCP :9500")
	for _, e := range []dryrun.Effect{
		{Program: []string{"lvcreate", "--name", "it's", "--config", "a{b=1 c=2}", "", "vg0"}},
		{Write: "write 1048576 bytes at byte 0 of /dev/vg0/a"}, {Write: "set nvmet/ports/1/addr_trtype tcp"},
	} {
		r.Steps = append(r.Steps, dryrun.StepOf("volume in vg0", e))
	}
	return r
}

func lacking() dryrun.Report {
	r := dryrun.Report{Version: 1, Agent: "v0.1.0", Kernel: "6.1.0-28-amd64", Config: "agent.yaml"}
	r.Step("agent start", "listen", "on TCP :9500")
	r.Lack(dryrun.Missing{Subsystem: "modules", Problem: "the module nvmet is not loaded", Fix: "modprobe nvmet"})
	r.Lack(dryrun.Missing{Subsystem: "pool", Pool: "vg0", Problem: "vgs: exit status 5:\n  Volume group \"vg0\" not found\n", Fix: "vgcreate vg0 DEVICE"})
	return r
}
