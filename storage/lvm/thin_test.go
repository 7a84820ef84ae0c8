package lvm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// poolRow is a thin pool of 100 extents.
type poolRow struct {
	active, data, metadata, health, check, zero string
	lost                                        int // disks of the group
}

var (
	awake  = poolRow{active: "active", data: "40.00", metadata: "10.00", zero: "zero"}
	asleep = poolRow{check: "unknown", zero: "zero"}
)

func (r poolRow) with(change func(*poolRow)) poolRow { change(&r); return r }

func (r poolRow) String() string {
	return fmt.Sprintf(`{"lv_name":"tp0", "lv_size":"%d", "lv_layout":"thin,pool", "lv_active":"%s", "data_percent":"%s", "metadata_percent":"%s", "lv_health_status":"%s", "lv_check_needed":"%s", "zero":"%s", "vg_extent_size":"%d", "vg_missing_pv_count":"%d", "vg_mda_size":"1044480", "vg_mda_free":"519680"}`,
		100*extent, r.active, r.data, r.metadata, r.health, r.check, r.zero, extent, r.lost)
}

func poolLVs(row string) hosttest.Step {
	return says(ran("lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options",
		"lv_name,lv_size,lv_layout,lv_active,data_percent,metadata_percent,lv_health_status,lv_check_needed,zero,vg_extent_size,vg_missing_pv_count,vg_mda_size,vg_mda_free", "vg0/tp0"), lvsOf(row))
}

func wake() hosttest.Step { return ran("lvchange", "--activate", "y", "vg0/tp0") }

func thinCreate() hosttest.Step {
	return ran("lvcreate", "--yes", "--type", "thin", "--activate", "y", "--addtag", "pillar-volume="+owner, "--addtag", "pillar-incomplete",
		"--virtualsize", "8388608b", "--thinpool", "tp0", "--name", "pvc-1", "vg0")
}

func thinLV(size int64, more string) hosttest.Step {
	return lvs("vg0/pvc-1", lvRow("pvc-1", size, "thin,sparse", "public", ownerTag+owner+more, "active", "254", "3"))
}

func thinGroup(t *testing.T, d *disk, steps ...hosttest.Step) *Group {
	g := group(t, d, steps...)
	g.cfg.ThinPool = "tp0"
	return g
}

func thinRequest(bytes int64) storage.Spec {
	s := request(bytes)
	s.LVM.Mode, s.LVM.ThinPool = Thin, "tp0"
	return s
}

func TestGroup_createThin(t *testing.T) {
	made := []hosttest.Step{thinCreate(), thinLV(2*extent, ","+incompleteTag), deltag()}
	tests := map[string][]hosttest.Step{
		"B-220 new":             append([]hosttest.Step{poolLVs(awake.String()), absent()}, made...),
		"pool asleep":           append([]hosttest.Step{poolLVs(asleep.String()), wake(), poolLVs(awake.String()), absent()}, made...),
		"D-14 nearly full":      append([]hosttest.Step{poolLVs(awake.with(func(r *poolRow) { r.data = "99.99" }).String()), absent()}, made...),
		"B-223 there":           {poolLVs(awake.String()), thinLV(2*extent, "")},
		"there, pool full":      {poolLVs(awake.with(func(r *poolRow) { r.data = "100.00" }).String()), thinLV(2*extent, "")},
		"B-222 left unfinished": append([]hosttest.Step{poolLVs(awake.String()), thinLV(2*extent, ","+incompleteTag), lvremove()}, made...),
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			d := &disk{content: make([]byte, 2*extent)}
			got, err := thinGroup(t, d, steps...).Create(t.Context(), thinRequest(2*extent-1))
			if err != nil || got != want {
				t.Errorf("Create = %+v, %v, want %+v", got, err, want)
			}
			for _, flag := range d.opened {
				if flag != 0 { // it would take chunks
					t.Errorf("the device was opened with flags %#x, want reading alone", flag)
				}
			}
		})
	}
}

// What is in the way of taking from a pool, in the user's words, of a create and of an
// expand. Nothing is run after it.
func TestThinPool_trouble(t *testing.T) {
	tests := map[string]struct {
		change func(*poolRow)
		want   error
		text   string
	}{
		"B-225 data full":      {func(r *poolRow) { r.data = "100.00" }, storage.ErrNoSpace, "100.00 % of its data is used: lvextend --size +SIZE vg0/tp0"},
		"queues writes":        {func(r *poolRow) { r.health = "out_of_data" }, storage.ErrNoSpace, "lvextend --size +SIZE vg0/tp0"},
		"B-225 metadata full":  {func(r *poolRow) { r.metadata, r.health = "100.00", "metadata_read_only" }, storage.ErrNoSpace, "lvextend --poolmetadatasize +SIZE vg0/tp0"},
		"read-only":            {func(r *poolRow) { r.health = "metadata_read_only" }, storage.ErrPrecondition, "is read-only: stop what uses its volumes"},
		"H-53 needs a check":   {func(r *poolRow) { r.check = "check needed" }, storage.ErrPrecondition, "needs a check: "},
		"failed":               {func(r *poolRow) { r.health, r.data, r.metadata = "failed", "", "" }, storage.ErrPrecondition, "is failed: "},
		"a disk is missing":    {func(r *poolRow) { r.health, r.lost = "partial", 1 }, storage.ErrPrecondition, "vg0 misses 1 of its disks"},
		"N-9 chunks not blank": {func(r *poolRow) { r.zero = "" }, storage.ErrPrecondition, "lvchange --zero y vg0/tp0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			row := poolLVs(awake.with(tt.change).String())
			_, create := thinGroup(t, nil, row, absent()).Create(t.Context(), thinRequest(extent))
			_, expand := thinGroup(t, nil, thinLV(extent, ""), row).Expand(t.Context(), "pvc-1", owner, 2*extent)
			health := thinGroup(t, nil, row).Health(t.Context())
			for call, err := range map[string]error{"Create": create, "Expand": expand, "Health": health} {
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%s = %v, want %v with %q", call, err, tt.want, tt.text)
				}
			}
		})
	}
}

// Every failure of a thin create keeps its kind and runs nothing after it.
func TestGroup_createThin_failures(t *testing.T) {
	none := poolLVs("")
	none.Stdout = ""
	noPool := fails(none, `Failed to find logical volume "vg0/tp0"`)
	tests := map[string]struct {
		steps []hosttest.Step
		want  error
		text  string
	}{
		"no pool":            {[]hosttest.Step{noPool}, storage.ErrPrecondition, "no such thin pool"},
		"B-204 odd text":     {[]hosttest.Step{fails(none, "nobody knows this")}, nil, "nobody knows this"},
		"another kind of LV": {[]hosttest.Step{poolLVs(strings.ReplaceAll(awake.String(), "thin,pool", "linear"))}, storage.ErrPrecondition, `tp0 is "linear"`},
		"no percentage":      {[]hosttest.Step{poolLVs(awake.with(func(r *poolRow) { r.metadata = "" }).String())}, nil, "metadata_percent"},
		"H-53 thin_check":    {[]hosttest.Step{poolLVs(asleep.String()), fails(wake(), "Check of pool vg0/tp0 failed (status:1). Manual repair required!")}, storage.ErrPrecondition, "lvconvert --repair vg0/tp0"},
		"stays asleep":       {[]hosttest.Step{poolLVs(asleep.String()), wake(), poolLVs(asleep.String()), absent()}, storage.ErrPrecondition, "lvchange --activate y vg0/tp0"},
		"B-223 as linear":    {[]hosttest.Step{poolLVs(awake.String()), lvs("vg0/pvc-1", plain("pvc-1", 2*extent))}, storage.ErrConflict, "asked for thin"},
		"the tool says full": {[]hosttest.Step{poolLVs(awake.String()), absent(), fails(thinCreate(), "Cannot create new thin volume, free space in thin pool vg0/tp0 reached threshold.")}, storage.ErrNoSpace, ""},
		"N-52 the pool's":    {[]hosttest.Step{poolLVs(awake.String()), lvs("vg0/pvc-1", strangers("pvc-1"))}, storage.ErrForeign, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := thinGroup(t, nil, tt.steps...).Create(t.Context(), thinRequest(2*extent))
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Create = %+v, %v, want %v with %q", got, err, tt.want, tt.text)
			}
		})
	}
}

// B-228, N-43: a thin LV of another pool is no volume of this agent's.
func TestGroup_otherThinPool(t *testing.T) {
	theirs := strings.ReplaceAll(lvRow("pvc-1", extent, "thin,sparse", "public", ownerTag+owner, "active", "254", "3"), "tp0", "tp1")
	if _, err := thinGroup(t, nil, lvs("vg0/pvc-1", theirs)).Activate(t.Context(), "pvc-1", owner); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), `thin pool "tp1"`) {
		t.Errorf("Activate = %v, want ErrPrecondition naming tp1", err)
	}
	list, err := thinGroup(t, nil, lvs("vg0", theirs, lvRow("ours", extent, "thin,sparse", "public", "", "active", "254", "4"), awakeAsLV)).List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID.Name != "ours" {
		t.Errorf("List = %v, %v, want ours alone", list, err)
	}
}

// awakeAsLV is the thin pool among the LVs of its group.
var awakeAsLV = lvRow("tp0", 100*extent, "thin,pool", "private", "", "active", "254", "5")

// What goes alone is removed, what others go with is not (H-50).
func TestGroup_deleteThin(t *testing.T) {
	tests := map[string]struct {
		role string
		want error
	}{
		"plain":                 {"public", nil},
		"with a snapshot":       {"public,origin,thinorigin", nil},
		"with snapshots":        {"public,origin,thinorigin,multithinorigin", nil},
		"with external ones":    {"public,origin,externalorigin", storage.ErrPrecondition},
		"itself a snapshot":     {"public,snapshot,thinsnapshot", storage.ErrPrecondition},
		"origin and snapshot":   {"public,origin,thinorigin,snapshot,thinsnapshot", storage.ErrPrecondition},
		"also thick, somehow":   {"public,origin,thickorigin", storage.ErrPrecondition},
		"thin and thick origin": {"public,origin,thickorigin,thinorigin", storage.ErrPrecondition},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			steps := []hosttest.Step{lvs("vg0/pvc-1", lvRow("pvc-1", extent, "thin,sparse", tt.role, ownerTag+owner, "active", "254", "3"))}
			if tt.want == nil {
				steps = append(steps, lvremove())
			}
			if err := thinGroup(t, nil, steps...).Delete(t.Context(), "pvc-1", owner); !errors.Is(err, tt.want) {
				t.Errorf("Delete = %v, want %v", err, tt.want)
			}
		})
	}
}

// B-227.
func TestGroup_thinPool(t *testing.T) {
	want := storage.Pool{Name: "vg0", Type: "lvm", ThinPool: "tp0", Capacity: storage.Capacity{Total: 100 * extent, Available: 60 * extent}}
	if got, err := thinGroup(t, nil, poolLVs(awake.String())).Pool(t.Context()); got != want || err != nil {
		t.Errorf("Pool = %+v, %v, want %+v", got, err, want)
	}
	none := poolLVs("")
	none.Stdout = ""
	for _, said := range []string{`Failed to find logical volume "vg0/tp0"`, `Volume group "vg0" not found`} {
		if _, err := thinGroup(t, nil, fails(none, said)).Pool(t.Context()); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Pool where LVM says %q = %v, want ErrNotFound", said, err)
		}
	}
	if _, err := thinGroup(t, nil, fails(none, "Permission denied")).Pool(t.Context()); err == nil || errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Pool, unknown failure = %v, want no kind", err)
	}
	for share, want := range map[percent]int64{0: 1 << 62, full: 0, 1: 1<<62 - 1<<62/10000 - 1, 50_00: 1 << 61} {
		if got := (thinPool{size: 1 << 62, data: share}).available(); got != want {
			t.Errorf("available at %s = %d, want %d", share, got, want)
		}
	}
}

// The first look of a process wakes the pool, a later one leaves it: it may be under repair.
func TestGroup_thinPoolAsleep(t *testing.T) {
	g := thinGroup(t, nil, poolLVs(asleep.String()), wake(), poolLVs(awake.String()), poolLVs(asleep.String()), poolLVs(asleep.String()))
	if _, err := g.Pool(t.Context()); err != nil {
		t.Errorf("Pool, first = %v", err)
	}
	if _, err := g.Pool(t.Context()); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), "lvchange --activate y vg0/tp0") {
		t.Errorf("Pool, later = %v, want ErrPrecondition with the command", err)
	}
	if err := g.Health(t.Context()); !errors.Is(err, storage.ErrPrecondition) {
		t.Errorf("Health = %v, want ErrPrecondition", err)
	}
}

// H-51: complaints come before the end, and change at steps only.
func TestGroup_thinPressure(t *testing.T) {
	tests := map[string]struct {
		data, metadata string
		want           string
	}{
		"well":              {"79.99", "79.99", ""},
		"data":              {"80.00", "10.00", "more than 80 % of its data"},
		"more data":         {"94.99", "80.00", "more than 90 % of its data"},
		"metadata":          {"80.00", "95.01", "more than 95 % of its metadata"},
		"nearly the end":    {"99.99", "10.00", "more than 95 % of its data"},
		"the same one step": {"90.01", "10.00", "more than 90 % of its data"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			row := awake.with(func(r *poolRow) { r.data, r.metadata = tt.data, tt.metadata })
			err := thinGroup(t, nil, poolLVs(row.String())).Health(t.Context())
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Health = %v, want %q", err, tt.want)
			}
		})
	}
	if err := group(t, nil, vgs(extent)).Health(t.Context()); err != nil {
		t.Errorf("Health without a thin pool = %v", err)
	}
	lost := vgs(extent)
	lost.Stdout = strings.Replace(lost.Stdout, `"vg_missing_pv_count":"0"`, `"vg_missing_pv_count":"2"`, 1)
	if err := group(t, nil, lost).Health(t.Context()); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), "vg0 misses 2 of its disks") {
		t.Errorf("Health of a group without two of its disks = %v, want it to say so", err)
	}
}
