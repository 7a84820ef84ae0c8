package nvmf

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/transport"
	"golang.org/x/sys/unix"
)

func TestDecide(t *testing.T) {
	at := func(state string) controller { return controller{name: "nvme0", state: state, portal: testPortal} }
	elsewhere := controller{name: "nvme1", state: "live", portal: transport.Portal{Address: "10.66.0.12", Port: 4420}}
	tests := map[string]struct {
		own  []controller
		want step
		err  error
	}{
		"none":                   {nil, doConnect, nil},
		"live":                   {[]controller{at("live")}, doUse, nil},
		"new":                    {[]controller{at("new")}, doWait, nil},
		"connecting":             {[]controller{at("connecting")}, doWait, nil},
		"resetting":              {[]controller{at("resetting")}, doWait, nil},
		"deleting":               {[]controller{at("deleting")}, doWait, nil},
		"deleting without I/O":   {[]controller{at("deleting (no IO)")}, doWait, nil},
		"dead":                   {[]controller{at("dead")}, doWait, nil},
		"one leaves, one lives":  {[]controller{at("deleting"), at("live")}, doUse, nil},
		"live at another portal": {[]controller{elsewhere}, 0, transport.ErrPrecondition},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := decide(tc.own, testPortal)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("decide = %d, %v, want %d, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

// machine is a sysfs that changes while it is looked at.
type machine struct {
	mu  sync.Mutex
	sys fstest.MapFS
}

func (m *machine) set(lines string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sys = tree(lines)
}

func (m *machine) Open(name string) (fs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sys.Open(name)
}

func (m *machine) host(connect func() error) *Host {
	return &Host{cfg: testConfig, sys: m, connect: func(string) error { return connect() }}
}

// TestHost_reach plays the states a subsystem can be met in; each test's clock is fake.
func TestHost_reach(t *testing.T) {
	live := controllerAt("nvme0", "live", testNQN, testHost)
	tests := map[string]struct {
		before, later string // later comes after 5 s
		connect       error
		created       bool
		connects      int
		err           error
	}{
		"not connected":              {"", "", nil, true, 1, nil},
		"live":                       {live, live, nil, false, 0, nil},
		"reconnecting, then live":    {controllerAt("nvme0", "connecting", testNQN, testHost), live, nil, false, 0, nil},
		"deleting, then gone":        {controllerAt("nvme0", "deleting", testNQN, testHost), "", nil, true, 1, nil},
		"never comes back":           {controllerAt("nvme0", "connecting", testNQN, testHost), controllerAt("nvme0", "connecting", testNQN, testHost), nil, false, 0, context.DeadlineExceeded},
		"another host's is not ours": {strings.Replace(live, testHost, testHost[:len(testHost)-1]+"2", 1), "", nil, true, 1, nil},
		"refused":                    {"", "", unix.EIO, false, 1, unix.EIO},
		"nobody listens":             {"", "", unix.ECONNREFUSED, false, 1, unix.ECONNREFUSED},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &machine{}
				m.set(tc.before)
				time.AfterFunc(5*time.Second, func() { m.set(tc.later) })
				connects := 0
				h := m.host(func() error {
					connects++
					if tc.connect == nil {
						m.set(live)
					}
					return tc.connect
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				created, err := h.reach(ctx, testTarget(nil), "")
				if created != tc.created || connects != tc.connects || !errors.Is(err, tc.err) {
					t.Errorf("reach = %v, %v after %d connects, want %v, %v after %d", created, err, connects, tc.created, tc.err, tc.connects)
				}
				time.Sleep(10 * time.Second) // let the machine's change pass
			})
		})
	}
}

// TestHost_Attach_undo fails an attach after its connect: what it made, or may have made,
// is gone, or the answer says that it is not.
func TestHost_Attach_undo(t *testing.T) {
	live := controllerAt("nvme0", "live", testNQN, testHost)
	tests := map[string]struct {
		after   string // the connect
		hang    bool   // the connect outlasts the call
		deletes string // sysfs after delete_controller
		created bool
	}{
		"lost at once":              {controllerAt("nvme0", "connecting", testNQN, testHost), false, "", false},
		"no device":                 {live, false, "", false},
		"not deleted":               {live, false, controllerAt("nvme0", "deleting", testNQN, testHost), true},
		"connect outlasts the call": {"", true, controllerAt("nvme0", "connecting", "(null)", testHost), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &machine{}
				m.set("")
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				h := m.host(func() error {
					m.set(tc.after)
					if tc.hang {
						m.set(tc.deletes)
						time.Sleep(time.Minute)
					}
					return nil
				})
				h.root = host.Root(t.TempDir())
				go func() { // the kernel: deletes what it was asked to after a while
					time.Sleep(8 * time.Second)
					m.set(tc.deletes)
				}()
				writable(t, h.root, "sys/class/nvme/nvme0/delete_controller")
				dev, err := h.Attach(ctx, testTarget(nil))
				if err == nil || dev.Created != tc.created {
					t.Errorf("Attach = %+v, %v, want an error and created %v", dev, err, tc.created)
				}
				time.Sleep(2 * time.Minute) // let the machine's changes pass
			})
		})
	}
}

// writable makes an attribute that takes what is written.
func writable(t *testing.T, root host.Root, name string) {
	t.Helper()
	p := root.Path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// EALREADY means that somebody else made the controller meanwhile: it is used.
func TestHost_reach_already(t *testing.T) {
	m := &machine{}
	m.set("")
	h := m.host(func() error {
		m.set(controllerAt("nvme0", "live", testNQN, testHost))
		return explain(unix.EALREADY)
	})
	if created, err := h.reach(t.Context(), testTarget(nil), ""); created || err != nil {
		t.Errorf("reach = %v, %v, want false, nil", created, err)
	}
}

func TestHost_Device(t *testing.T) {
	m := &machine{}
	m.set(multipathOn)
	h := m.host(nil)
	got, err := h.Device(t.Context(), testNQN)
	want := Device{Path: "/dev/nvme0n1", UUID: "922be737-69de-8109-be3a-3992a336e7c5", Major: 259, Minor: 0}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Device: %v (-want +got):\n%s", err, diff)
	}
	m.set("")
	if _, err := h.Device(t.Context(), testNQN); !errors.Is(err, transport.ErrNotFound) {
		t.Errorf("Device without a connection = %v, want ErrNotFound", err)
	}
	delete(m.sys, "class")
	if _, err := h.Device(t.Context(), testNQN); err == nil || errors.Is(err, transport.ErrNotFound) {
		t.Errorf("Device without a sysfs = %v, want another error", err)
	}
}

// TestHost_Detach_waits: nothing counts as detached while the kernel shows any of it.
func TestHost_Detach_waits(t *testing.T) {
	tests := map[string]struct {
		sys  string
		want error
	}{
		"nothing there":               {local, nil},
		"another subsystem":           {strings.ReplaceAll(multipathOn, "vg0.pvc-1", "vg0.pvc-10"), nil},
		"controller on its way out":   {controllerAt("nvme0", "deleting", testNQN, testHost), context.DeadlineExceeded},
		"device left":                 {strings.ReplaceAll(multipathOn, "class/nvme/", "class/gone/"), context.DeadlineExceeded},
		"controller without a name":   {controllerAt("nvme0", "connecting", "(null)", testHost), context.DeadlineExceeded},
		"unnamed one elsewhere":       {strings.ReplaceAll(controllerAt("nvme0", "connecting", "(null)", testHost), testPortal.Address, "10.66.0.12"), nil},
		"unnamed one of another host": {controllerAt("nvme0", "connecting", "(null)", "nqn.2014-08.org.nvmexpress:uuid:x"), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &machine{}
				m.set(tc.sys)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := m.host(nil).Detach(ctx, testNQN, testPortal); !errors.Is(err, tc.want) {
					t.Errorf("Detach = %v, want %v", err, tc.want)
				}
			})
		})
	}
}

func TestCheckLimit(t *testing.T) {
	tests := map[string]struct {
		bytes int64
		ok    bool
	}{
		"none": {0, true}, "a page": {4096, true}, "4 MiB": {4 << 20, true},
		"less than a page": {2048, false}, "not whole KiB": {4097, false}, "negative": {-4096, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := CheckLimit(tc.bytes); (err == nil) != tc.ok || err != nil && !errors.Is(err, transport.ErrInvalid) {
				t.Errorf("CheckLimit(%d) = %v, want ok %v", tc.bytes, err, tc.ok)
			}
		})
	}
}
