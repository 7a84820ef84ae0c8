package lvm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

const extent = 4 << 20

// noDisks is the filter of a machine without NVMe disks.
const noDisks = `devices{filter=["r|^/dev/zd|","r|^/dev/zvol/|","r|^/dev/mapper/pillar-local-|","r|^/dev/nvme|"]}`

// ran is a tool's run as it must be asked for.
func ran(tool string, args ...string) hosttest.Step {
	return hosttest.Step{Argv: append([]string{tool, "--config", settings + " " + noDisks}, args...)}
}

func says(s hosttest.Step, stdout string) hosttest.Step {
	s.Stdout = stdout
	return s
}

func fails(s hosttest.Step, stderr string) hosttest.Step {
	s.Exit, s.Stderr = 5, stderr
	return s
}

func vgs(free int64) hosttest.Step {
	return says(ran("vgs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options", "vg_name,vg_size,vg_free,vg_extent_size,vg_missing_pv_count,vg_mda_size,vg_mda_free", "vg0"), vgOf(100*extent, free))
}

func lvs(target string, rows ...string) hosttest.Step {
	return says(ran("lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options",
		"lv_name,lv_size,lv_layout,lv_role,pool_lv,lv_tags,vg_uuid,lv_uuid,lv_active,lv_kernel_major,lv_kernel_minor", target), lvsOf(rows...))
}

func absent() hosttest.Step {
	return fails(lvs("vg0/pvc-1"), `Failed to find logical volume "vg0/pvc-1"`)
}

func lvcreate() hosttest.Step {
	return ran("lvcreate", "--yes", "--type", "linear", "--activate", "y",
		"--addtag", "pillar-volume="+owner, "--addtag", "pillar-incomplete", "--wipesignatures", "y", "--zero", "y", "--size", "8388608b", "--name", "pvc-1", "vg0")
}

func lvremove() hosttest.Step { return ran("lvremove", "--yes", "vg0/pvc-1") }

func deltag() hosttest.Step { return ran("lvchange", "--deltag", "pillar-incomplete", "vg0/pvc-1") }

// disk is an LV's device in memory. It keeps what was written where it must not.
type disk struct {
	content []byte
	deaf    bool // writes do nothing
	opened  []int
}

func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(d.content).ReadAt(p, off)
}

func (d *disk) WriteAt(p []byte, off int64) (int, error) {
	if !d.deaf {
		copy(d.content[off:], p)
	}
	return len(p), nil
}

func (d *disk) Sync() error  { return nil }
func (d *disk) Close() error { return nil }

// dirty is a device on extents of an earlier LV.
func dirty() *disk { return &disk{content: bytes.Repeat([]byte{0xa5}, 2*extent)} }

func group(t *testing.T, d *disk, steps ...hosttest.Step) *Group {
	g := New(hosttest.Script(t, steps...), host.Root(t.TempDir()), Config{VolumeGroup: "vg0"})
	g.open = func(lv report, flag int) (device, error) {
		if d == nil {
			t.Fatalf("the device of %s was opened", lv.name)
		}
		d.opened = append(d.opened, flag)
		return d, nil
	}
	g.flush = func(context.Context) error { return nil } // see TestGroup_flushDisks
	return g
}

func request(bytes int64) storage.Spec {
	return storage.Spec{
		ID: storage.VolumeID{Pool: "vg0", Name: "pvc-1"}, Owner: owner, Bytes: bytes, Backend: storage.LVMLV,
		LVM: &storage.LVMParams{VolumeGroup: "vg0", Mode: Linear},
	}
}

var want = storage.Volume{ID: storage.VolumeID{Pool: "vg0", Name: "pvc-1"}, Owner: owner, Bytes: 2 * extent, DevicePath: "/dev/vg0/pvc-1"}

func TestGroup_Create(t *testing.T) {
	tests := map[string]struct {
		steps []hosttest.Step
		wiped bool
	}{
		"B-220 new": {
			steps: []hosttest.Step{vgs(100 * extent), absent(), lvcreate(), lvs("vg0/pvc-1", unfinished("pvc-1", 2*extent)), deltag()},
			wiped: true,
		},
		"B-223 there already": {
			steps: []hosttest.Step{vgs(0), lvs("vg0/pvc-1", plain("pvc-1", 2*extent))},
		},
		"B-224 there, inactive": {
			steps: []hosttest.Step{vgs(0), lvs("vg0/pvc-1", inactive("pvc-1", 2*extent)),
				ran("lvchange", "--activate", "y", "vg0/pvc-1"), lvs("vg0/pvc-1", plain("pvc-1", 2*extent))},
		},
		"B-222 left unfinished": {
			steps: []hosttest.Step{vgs(0), lvs("vg0/pvc-1", unfinished("pvc-1", 2*extent)), lvremove(),
				lvcreate(), lvs("vg0/pvc-1", unfinished("pvc-1", 2*extent)), deltag()},
			wiped: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := dirty()
			got, err := group(t, d, tt.steps...).Create(t.Context(), request(2*extent-1))
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("Create = %v (-want +got):\n%s", err, diff)
			}
			if wiped := bytes.Count(d.content, []byte{0}) == 2<<20 && d.content[1<<20] == 0xa5; wiped != tt.wiped {
				t.Errorf("both ends wiped: %v, want %v", wiped, tt.wiped)
			}
		})
	}
}

// Every failure keeps its kind, runs nothing after it and leaves the tag where it is.
func TestGroup_Create_failures(t *testing.T) {
	odd := `lvmlockd: nobody knows this text`
	noGroup := "Volume group \"vg0\" not found\n  Cannot process volume group vg0"
	deaf := dirty()
	deaf.deaf = true
	tests := map[string]struct {
		disk  *disk
		steps []hosttest.Step
		want  error
		text  string
	}{
		"no group":               {steps: []hosttest.Step{fails(vgs(0), noGroup)}, want: storage.ErrPrecondition, text: "vg0"},
		"B-204 unknown text":     {steps: []hosttest.Step{vgs(100 * extent), fails(lvs("vg0/pvc-1"), odd)}, text: odd},
		"B-204 hung":             {steps: []hosttest.Step{vgs(100 * extent), {Argv: lvs("vg0/pvc-1").Argv, Err: context.DeadlineExceeded}}, want: context.DeadlineExceeded},
		"B-204 no report":        {steps: []hosttest.Step{vgs(100 * extent), says(lvs("vg0/pvc-1"), "")}, text: "parse"},
		"B-204 empty report":     {steps: []hosttest.Step{vgs(100 * extent), lvs("vg0/pvc-1")}, text: "0 LVs"},
		"B-223 other size":       {steps: []hosttest.Step{vgs(0), lvs("vg0/pvc-1", plain("pvc-1", 3*extent))}, want: storage.ErrConflict, text: "12582912"},
		"B-223 other kind":       {steps: []hosttest.Step{vgs(0), lvs("vg0/pvc-1", lvRow("pvc-1", 2*extent, "thin,sparse", "public", ownerTag+owner, "active", "254", "3"))}, want: storage.ErrConflict, text: "thin"},
		"N-52 made by hand":      {steps: []hosttest.Step{vgs(0), lvs("vg0/pvc-1", strangers("pvc-1"))}, want: storage.ErrForeign, text: "lvchange --addtag pillar-volume=" + owner + " vg0/pvc-1"},
		"full before the tool":   {steps: []hosttest.Step{vgs(extent), absent()}, want: storage.ErrNoSpace, text: "4194304 free"},
		"full says the tool":     {steps: []hosttest.Step{vgs(100 * extent), absent(), fails(lvcreate(), `Volume group "vg0" has insufficient free space (1 extents): 2 required.`)}, want: storage.ErrNoSpace},
		"wiping failed":          {steps: []hosttest.Step{vgs(100 * extent), absent(), fails(lvcreate(), "Failed to wipe signatures")}, text: "wipe"},
		"B-221 still soiled":     {disk: deaf, steps: []hosttest.Step{vgs(100 * extent), absent(), lvcreate(), lvs("vg0/pvc-1", unfinished("pvc-1", 2*extent))}, text: "old content at byte 0"},
		"made without the tag":   {steps: []hosttest.Step{vgs(100 * extent), absent(), lvcreate(), lvs("vg0/pvc-1", plain("pvc-1", 2*extent))}, text: "pillar-incomplete"},
		"made in another size":   {steps: []hosttest.Step{vgs(100 * extent), absent(), lvcreate(), lvs("vg0/pvc-1", unfinished("pvc-1", extent))}, text: "4194304"},
		"unfinished and in use":  {steps: []hosttest.Step{vgs(0), lvs("vg0/pvc-1", unfinished("pvc-1", 2*extent)), fails(lvremove(), "Logical volume vg0/pvc-1 in use.")}, want: storage.ErrBusy},
		"tag would not come off": {disk: dirty(), steps: []hosttest.Step{vgs(100 * extent), absent(), lvcreate(), lvs("vg0/pvc-1", unfinished("pvc-1", 2*extent)), fails(deltag(), odd)}, text: odd},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := group(t, tt.disk, tt.steps...).Create(t.Context(), request(2*extent))
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Create = %+v, %v, want %v with %q", got, err, tt.want, tt.text)
			}
			if errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Create = %v, which reads as an absent volume", err)
			}
		})
	}
}

// Requests that no tool is run for.
func TestGroup_Create_refused(t *testing.T) {
	tests := map[string]struct {
		change func(*storage.Spec)
		pool   string // the agent's thin pool
		want   error
	}{
		"B-226 name":                      {change: func(s *storage.Spec) { s.ID.Name = "--yes" }, want: storage.ErrInvalid},
		"B-203 size":                      {change: func(s *storage.Spec) { s.Bytes = 0 }, want: storage.ErrInvalid},
		"B-203 no parameters":             {change: func(s *storage.Spec) { s.LVM = nil }, want: storage.ErrInvalid},
		"B-203 group of the ID":           {change: func(s *storage.Spec) { s.ID.Pool = "vg1" }, want: storage.ErrInvalid},
		"B-203 group of the parameters":   {change: func(s *storage.Spec) { s.LVM.VolumeGroup = "vg1" }, want: storage.ErrInvalid},
		"B-203 backend":                   {change: func(s *storage.Spec) { s.Backend = storage.ZFSZvol }, want: storage.ErrInvalid},
		"B-220 mode":                      {change: func(s *storage.Spec) { s.LVM.Mode = "striped" }, want: storage.ErrInvalid},
		"B-220 thin without a pool":       {change: func(s *storage.Spec) { s.LVM.Mode = Thin }, want: storage.ErrPrecondition},
		"B-202 N-43 another thin pool":    {change: func(s *storage.Spec) { s.LVM.Mode, s.LVM.ThinPool = Thin, "tp1" }, pool: "tp0", want: storage.ErrPrecondition},
		"B-202 linear, another thin pool": {change: func(s *storage.Spec) { s.LVM.ThinPool = "tp1" }, pool: "tp0", want: storage.ErrPrecondition},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := request(extent)
			tt.change(&s)
			g := group(t, nil)
			g.cfg.ThinPool = tt.pool
			if got, err := g.Create(t.Context(), s); !errors.Is(err, tt.want) {
				t.Errorf("Create = %+v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func TestGroup_Delete(t *testing.T) {
	origin := lvRow("pvc-1", extent, "linear", "public,origin,thickorigin", ownerTag+owner, "active", "254", "3")
	pool := lvRow("pvc-1", extent, "thin,pool", "private", ownerTag+owner, "active", "254", "3")
	tests := map[string]struct {
		steps []hosttest.Step
		want  error
	}{
		"there":                      {steps: []hosttest.Step{lvs("vg0/pvc-1", plain("pvc-1", extent)), lvremove()}},
		"unfinished":                 {steps: []hosttest.Step{lvs("vg0/pvc-1", unfinished("pvc-1", extent)), lvremove()}},
		"absent":                     {steps: []hosttest.Step{absent()}},
		"gone meanwhile":             {steps: []hosttest.Step{lvs("vg0/pvc-1", plain("pvc-1", extent)), fails(lvremove(), `Failed to find logical volume "vg0/pvc-1"`)}},
		"N-52 made by hand":          {steps: []hosttest.Step{lvs("vg0/pvc-1", strangers("pvc-1"))}, want: storage.ErrForeign},
		"N-52 another lifecycle's":   {steps: []hosttest.Step{lvs("vg0/pvc-1", lvRow("pvc-1", extent, "linear", "public", ownerTag+"another", "active", "254", "3"))}, want: storage.ErrForeign},
		"B-225 in use":               {steps: []hosttest.Step{lvs("vg0/pvc-1", plain("pvc-1", extent)), fails(lvremove(), "Logical volume vg0/pvc-1 in use.")}, want: storage.ErrBusy},
		"N-17 an origin":             {steps: []hosttest.Step{lvs("vg0/pvc-1", origin)}, want: storage.ErrPrecondition},
		"H-50 a thin pool":           {steps: []hosttest.Step{lvs("vg0/pvc-1", pool)}, want: storage.ErrPrecondition},
		"B-204 the group is missing": {steps: []hosttest.Step{fails(lvs("vg0/pvc-1"), `Volume group "vg0" not found`)}, want: storage.ErrPrecondition},
		"B-204 unknown":              {steps: []hosttest.Step{{Argv: lvs("vg0/pvc-1").Argv, Err: io.ErrUnexpectedEOF}}, want: io.ErrUnexpectedEOF},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := group(t, nil, tt.steps...).Delete(t.Context(), "pvc-1", owner); !errors.Is(err, tt.want) {
				t.Errorf("Delete = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestGroup_Activate_unfinished(t *testing.T) {
	g := group(t, nil, lvs("vg0/pvc-1", unfinished("pvc-1", extent)))
	if got, err := g.Activate(t.Context(), "pvc-1", owner); !errors.Is(err, storage.ErrPrecondition) {
		t.Errorf("Activate = %+v, %v, want ErrPrecondition", got, err)
	}
}

// A device that is missing although the LV is active gets its node; one that is another's
// does not (B-224).
func TestGroup_Activate_node(t *testing.T) {
	row := lvs("vg0/pvc-1", plain("pvc-1", 2*extent))
	g := group(t, nil, row, ran("vgmknodes", "vg0/pvc-1"))
	answers := []error{os.ErrNotExist, nil}
	g.open = func(report, int) (device, error) {
		err := answers[0]
		answers = answers[1:]
		return dirty(), err
	}
	got, err := g.Activate(t.Context(), "pvc-1", owner)
	got.Device = storage.DeviceID{} // the kernel says
	if err != nil || got != want {
		t.Errorf("Activate = %+v, %v, want %+v", got, err, want)
	}
	other := errors.New("is not this LV's device")
	g = group(t, nil, row)
	g.open = func(report, int) (device, error) { return nil, other }
	if _, err := g.Activate(t.Context(), "pvc-1", owner); !errors.Is(err, other) {
		t.Errorf("Activate = %v, want %v", err, other)
	}
}

// B-228: the finished linear LVs, and nothing that only looks like one.
func TestGroup_List(t *testing.T) {
	g := group(t, nil, lvs("vg0", plain("pvc-1", 2*extent), unfinished("half", extent),
		lvRow("tp0", extent, "thin,pool", "private", "", "active", "254", "5"),
		lvRow("thin", extent, "thin,sparse", "public", "", "active", "254", "6"),
		lvRow("copy", extent, "linear", "public,snapshot,thicksnapshot", "", "active", "254", "7")))
	got, err := g.List(t.Context())
	if diff := cmp.Diff([]storage.Volume{want}, got); err != nil || diff != "" {
		t.Errorf("List = %v (-want +got):\n%s", err, diff)
	}
}

func TestGroup_Pool(t *testing.T) {
	got, err := group(t, nil, vgs(7*extent)).Pool(t.Context())
	wantPool := storage.Pool{Name: "vg0", Type: "lvm", Capacity: storage.Capacity{Total: 100 * extent, Available: 7 * extent}}
	if got != wantPool || err != nil {
		t.Errorf("Pool = %+v, %v, want %+v", got, err, wantPool)
	}
	if _, err := group(t, nil, fails(vgs(0), `Volume group "vg0" not found`)).Pool(t.Context()); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Pool of a missing group = %v, want ErrNotFound", err)
	}
	if _, err := group(t, nil, fails(vgs(0), "Permission denied")).Pool(t.Context()); err == nil || errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Pool, unknown failure = %v, want no kind", err)
	}
}

// hung is a tool that ends only when it is killed.
type hung struct{}

func (hung) Run(ctx context.Context, _ string, _ ...string) ([]byte, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// B-204: a tool that hangs is an internal error, not the end of its caller's time.
func TestGroup_hungTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := New(hung{}, "", Config{VolumeGroup: "vg0"}).Inspect(t.Context(), "pvc-1")
		if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Inspect = %v, want an error of no kind", err)
		}
	})
}
