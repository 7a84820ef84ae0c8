package modprobe

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/storage/host"
)

// kmod answers modprobe by module name and records the calls.
type kmod struct {
	fails map[string]error
	calls []string
}

func (k *kmod) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	k.calls = append(k.calls, name+" "+strings.Join(args, " "))
	return nil, k.fails[args[len(args)-1]]
}

func TestLoad(t *testing.T) {
	root := host.Root(t.TempDir())
	if err := os.MkdirAll(root.Path("sys/module/dm_mod"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := &kmod{fails: map[string]error{
		"nvmet-rdma": &host.ExitError{Code: 1, Stderr: "modprobe: FATAL: Module nvmet-rdma not found\nin directory /lib/modules/6.1"},
		"iscsi_tcp":  errors.New("run modprobe: executable file not found in $PATH"),
	}}
	var out strings.Builder
	load(context.Background(), &out, run, root, "/", []string{"nvmet", "dm-mod", "nvmet-rdma", "iscsi_tcp"})
	want := `nvmet: loaded
dm-mod: already there
nvmet-rdma: not loaded: modprobe: FATAL: Module nvmet-rdma not found in directory /lib/modules/6.1
iscsi_tcp: not loaded: run modprobe: executable file not found in $PATH
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	calls := []string{"modprobe -d / nvmet", "modprobe -d / nvmet-rdma", "modprobe -d / iscsi_tcp"}
	if diff := cmp.Diff(calls, run.calls); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
}

func TestCommand_NeverFails(t *testing.T) {
	cmd := Command()
	cmd.SetArgs([]string{"-d", t.TempDir(), "no_such_module_xyz"})
	var out strings.Builder
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		t.Errorf("Execute() = %v, want nil", err)
	}
	if got := out.String(); !strings.HasPrefix(got, "no_such_module_xyz: not loaded: ") {
		t.Errorf("output = %q, want a line that says it is not loaded", got)
	}
}
