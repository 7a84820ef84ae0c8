package nvmet

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

// TestTarget_Export_refuses: each refusal leaves the kernel as it was.
func TestTarget_Export_refuses(t *testing.T) {
	tests := map[string]struct {
		change func(*transport.Export)
		want   error
		text   string
	}{
		"no address":           {func(e *transport.Export) { e.Portal.Address = "storage-1" }, transport.ErrInvalid, "bind address"},
		"host is a path":       {func(e *transport.Export) { e.Initiators = []string{"../x"} }, transport.ErrInvalid, "is not an NQN"},
		"in-capsule on live":   {func(e *transport.Export) { e.InCapsuleDataSize = new(int32(8192)) }, transport.ErrPrecondition, "param_inline_data_size 16384, asked for 8192"},
		"negative in-capsule":  {func(e *transport.Export) { e.InCapsuleDataSize = new(int32(-1)) }, transport.ErrInvalid, "in-capsule"},
		"odd transfer size":    {func(e *transport.Export) { e.MaxDataTransferSize = new(int32(5000)) }, transport.ErrInvalid, "power of two"},
		"volume name too long": {func(e *transport.Export) { e.Volume += strings.Repeat("n", 223) }, transport.ErrInvalid, "at most 223"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k, tgt := inMemory(t)
			exporting()(t, tgt)
			k.Trace()
			_, err := tgt.Export(t.Context(), export(tc.change), free)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("Export = %v, want %v with %q", err, tc.want, tc.text)
			}
			if trace := k.Trace(); len(trace) > 0 {
				t.Errorf("a refused Export wrote:\n%s", shorten(trace))
			}
		})
	}
}

// meddling runs a function when a subsystem is first about to be made.
type meddling struct {
	*configfstest.Kernel
	done atomic.Bool
	run  func()
}

func (m *meddling) Mkdir(name string) error {
	if name == subDir && !m.done.Swap(true) {
		m.run()
	}
	return m.Kernel.Mkdir(name)
}

// N-14: of two volumes that derive one NQN and are exported at once, one is refused before
// its device could get under the other's name.
func TestTarget_Export_collisionAtOnce(t *testing.T) {
	m := &meddling{Kernel: configfstest.New()}
	tgt := New(configfs.On(m), Config{IdentityDir: t.TempDir()})
	slow := func(string) (func() error, error) {
		time.Sleep(100 * time.Millisecond) // until the other has written its device too
		return func() error { return nil }, nil
	}
	second := make(chan error, 1)
	m.run = func() {
		go func() {
			_, err := tgt.Export(t.Context(), export(func(e *transport.Export) { e.DevicePath = "/dev/zero" }), slow)
			second <- err
		}()
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := tgt.Export(t.Context(), export(func(e *transport.Export) { e.DevicePath = os.DevNull }), slow); err != nil {
		t.Errorf("Export = %v", err)
	}
	if err := <-second; !errors.Is(err, transport.ErrPrecondition) {
		t.Errorf("Export of another device at the same time = %v, want ErrPrecondition", err)
	}
	if trace := strings.Join(m.Trace(), "\n"); strings.Contains(trace, "/dev/zero") {
		t.Errorf("the refused device was in the namespace:\n%s", trace)
	}
}

func TestTarget_Export_heldDevice(t *testing.T) {
	k, tgt := inMemory(t)
	held := func(string) (func() error, error) { return nil, syscall.EBUSY }
	if _, err := tgt.Export(t.Context(), export(nil), held); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Export of a held device = %v, want EBUSY", err)
	}
	for _, line := range k.Trace() {
		if strings.Contains(line, "enable 1") || strings.HasPrefix(line, "link nvmet/ports") {
			t.Errorf("Export of a held device wrote %q", line)
		}
	}
}

// The claim covers the write that enables, and ends.
func TestTarget_Export_enablesUnderClaim(t *testing.T) {
	k, tgt := inMemory(t)
	claimed, releases := false, 0
	k.OnEffect = func(line string) error {
		if strings.HasSuffix(line, "enable 1") && !claimed {
			t.Error("enabled without the claim")
		}
		return nil
	}
	hold := func(string) (func() error, error) {
		claimed = true
		return func() error { claimed = false; releases++; return nil }, nil
	}
	if _, err := tgt.Export(t.Context(), export(nil), hold); err != nil || releases != 1 {
		t.Errorf("Export = %v with %d releases, want one", err, releases)
	}
}

func TestTarget_Allow_withoutExport(t *testing.T) {
	_, tgt := inMemory(t)
	if err := tgt.Allow(t.Context(), volume, device, host1); !errors.Is(err, transport.ErrNotFound) {
		t.Errorf("Allow without an export = %v, want ErrNotFound", err)
	}
	if err := tgt.Allow(t.Context(), volume, device, "../../x"); !errors.Is(err, transport.ErrInvalid) {
		t.Errorf("Allow of a path = %v, want ErrInvalid", err)
	}
	must(t, tgt.Deny(t.Context(), volume, device, host1, free))
	must(t, tgt.Resize(t.Context(), volume, device))
	must(t, tgt.Unexport(t.Context(), volume, device))
}

// forgetful takes its n-th effect without an error and does nothing.
type forgetful struct {
	configfs.FS
	n int
}

func (f *forgetful) skips() bool { f.n--; return f.n == -1 }

func (f *forgetful) Mkdir(name string) error {
	if f.skips() {
		return nil
	}
	return f.FS.Mkdir(name)
}

func (f *forgetful) Symlink(target, name string) error {
	if f.skips() {
		return nil
	}
	return f.FS.Symlink(target, name)
}

func (f *forgetful) WriteFile(name string, data []byte) error {
	if f.skips() {
		return nil
	}
	return f.FS.WriteFile(name, data)
}

// B-2, B-27, B-241: an effect that did not last fails the export, and nothing incomplete is
// reachable.
func TestTarget_Export_readsBack(t *testing.T) {
	for n := 0; ; n++ {
		k := configfstest.New()
		fs := &forgetful{FS: k, n: n}
		_, err := New(configfs.On(fs), Config{IdentityDir: t.TempDir()}).Export(t.Context(), export(inCapsule(8192)), free)
		complete(t, k, n)
		if fs.n >= 0 { // it had no effect of that number
			must(t, err)
			return
		}
		if err == nil {
			t.Errorf("Export succeeded although the kernel forgot effect %d: %q", n, k.Trace())
		}
	}
}

// B-267: what is busy is asked again for a time; then the call fails, and what is left
// stays for the next.
func TestTarget_Unexport_busy(t *testing.T) {
	for _, step := range []string{"unlink nvmet/ports/", "rmdir " + subDir + "/namespaces/1", "rmdir " + subDir} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, tgt := inMemory(t)
				exporting()(t, tgt)
				busy := 1 << 30
				k.OnEffect = func(line string) error {
					if strings.HasPrefix(line, step) && busy > 0 {
						busy--
						return syscall.EBUSY
					}
					return nil
				}
				start := time.Now()
				err := tgt.Unexport(t.Context(), volume, device)
				if !errors.Is(err, transport.ErrPrecondition) || !errors.Is(err, syscall.EBUSY) || time.Since(start) != busyWait {
					t.Errorf("Unexport = %v after %v, want ErrPrecondition after %v", err, time.Since(start), busyWait)
				}
				if there, err := tgt.subsystemDir(nqn).Exists(); !there || err != nil {
					t.Errorf("subsystem after the refusal: %v, %v, want it there", there, err)
				}
				busy = 3
				unexporting(t, tgt)
			})
		})
	}
}
