package configfs_test

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

const sub = "nvmet/subsystems/nqn.2026-01.com.example:a"

func TestDir_repeats(t *testing.T) {
	k := configfstest.New()
	ctx, root := t.Context(), k.Dir()
	subsystem, host := root.Sub(sub), root.Sub("nvmet/hosts/nqn.2026-01.com.example:h")
	steps := []func() error{
		func() error { return subsystem.Mkdir(ctx) },
		func() error { return host.Mkdir(ctx) },
		func() error { return subsystem.Set(ctx, "attr_serial", "short") },
		func() error { return subsystem.Sub("allowed_hosts").Link(ctx, host) },
		func() error { return subsystem.Sub("allowed_hosts").Unlink(ctx, host.Base()) },
		func() error { return host.Rmdir(ctx) },
	}
	for i, step := range steps {
		for range 2 {
			if err := step(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
	}
	want := []string{
		"mkdir " + sub,
		"mkdir nvmet/hosts/nqn.2026-01.com.example:h",
		"set " + sub + "/attr_serial short",
		"link " + sub + "/allowed_hosts/nqn.2026-01.com.example:h",
		"unlink " + sub + "/allowed_hosts/nqn.2026-01.com.example:h",
		"rmdir nvmet/hosts/nqn.2026-01.com.example:h",
	}
	if diff := cmp.Diff(want, k.Trace()); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

// stubborn shows another value than was written.
type stubborn struct{ *configfstest.Kernel }

func (stubborn) ReadFile(string) ([]byte, error) { return []byte("as it was\n"), nil }

func TestDir_Set_mismatch(t *testing.T) {
	k := configfstest.New()
	d := configfs.On(stubborn{k}).Sub(sub)
	if err := d.Mkdir(t.Context()); err != nil {
		t.Fatal(err)
	}
	var mismatch *configfs.MismatchError
	err := d.Set(t.Context(), "attr_serial", "new")
	if !errors.As(err, &mismatch) {
		t.Fatalf("Set = %v, want a MismatchError", err)
	}
	want := &configfs.MismatchError{Attr: sub + "/attr_serial", Want: "new", Got: "as it was"}
	if diff := cmp.Diff(want, mismatch); diff != "" {
		t.Errorf("Set (-want +got):\n%s", diff)
	}
}

func TestDir_Exists_unknown(t *testing.T) {
	broken := configfs.On(unreadable{configfstest.New()}).Sub(sub)
	if ok, err := broken.Exists(); ok || !errors.Is(err, syscall.EIO) {
		t.Errorf("Exists() = %v, %v, want the EIO", ok, err)
	}
	if err := broken.Rmdir(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("Rmdir() = %v, want the EIO", err)
	}
}

type unreadable struct{ *configfstest.Kernel }

func (unreadable) IsDir(name string) (bool, error) {
	return false, &fs.PathError{Op: "lstat", Path: name, Err: syscall.EIO}
}

func TestDir_endedContext(t *testing.T) {
	k := configfstest.New()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Dir().Sub(sub).Mkdir(ctx); !errors.Is(err, context.Canceled) || len(k.Trace()) > 0 {
		t.Errorf("Mkdir after the end of its context = %v, want %v and no effect", err, context.Canceled)
	}
}
