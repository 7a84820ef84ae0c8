package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// What zfs(8) 2.3.2 printed in a lab guest.
const (
	parentRow  = "tank/k8s\tfilesystem\t-\t-\t12132352\t860141568\t0\t-\t-\n"
	zvolRow    = "tank/k8s/pvc-1\tvolume\t10010624\t16384\t12107776\t872237056\t12107776\tdefault\t" + owner + "\n"
	sparseRow  = "tank/k8s/pvc-1\tvolume\t10010624\t16384\t12288\t860141568\t0\tdefault\t" + owner + "\n"
	othersRow  = "tank/k8s/pvc-1\tvolume\t10010624\t16384\t12107776\t872237056\t12107776\tdefault\t-\n"
	copyRow    = "tank/k8s/pvc-1\tvolume\t10010624\t16384\t12107776\t872237056\t12107776\tdefault\tanother\n"
	torn       = "tank/k8s/pvc-1\tvolume\t20004864\t16384\t12107776\t872237056\t12107776\tdefault\t" + owner + "\n"
	grownRow   = "tank/k8s/pvc-1\tvolume\t20004864\t16384\t22118400\t872237056\t22118400\tdefault\t" + owner + "\n"
	fileRow    = "tank/k8s/pvc-1\tfilesystem\t-\t-\t24576\t860141568\t0\t-\t-\n"
	halfMade   = "tank/k8s/pvc-1\tvolume\t10010624\t16384\t12288\t872237056\t0\tdefault\t-\n"
	unfinished = "tank/k8s/unfinished 4c94214b1330276a"
)

const (
	volsize = 10010624
	owner   = "0b1e0c62-3a5e-4f62-9d0a-3f1f0f8c1a01"
)

func zfs(args ...string) hosttest.Step { return hosttest.Step{Argv: append([]string{"zfs"}, args...)} }

func fails(s hosttest.Step, stderr string) hosttest.Step {
	s.Exit, s.Stderr = 1, stderr
	return s
}

// list is zfs list of the parent and datasets; absent are those it says are not there.
func list(rows string, absent []string, datasets ...string) hosttest.Step {
	s := zfs(append([]string{"list", "-H", "-p", "-o",
		"name,type,volsize,volblocksize,used,available,refreservation,volmode,pillar-csi.bhyoo.com:volume", "tank/k8s"}, datasets...)...)
	s.Stdout = rows
	for _, a := range absent {
		s.Exit = 1
		s.Stderr = strings.TrimSpace(s.Stderr + "\ncannot open '" + a + "': dataset does not exist")
	}
	return s
}

const dataset = "tank/k8s/pvc-1"

// Steps of a volume alone, and of it with what a create may have left.
func present(row string) hosttest.Step { return list(parentRow+row, nil, dataset) }
func absent() hosttest.Step            { return list(parentRow, []string{dataset}, dataset) }
func looks(row string) hosttest.Step {
	return list(parentRow+row, []string{unfinished}, dataset, unfinished)
}
func looksAbsent() hosttest.Step {
	return list(parentRow, []string{dataset, unfinished}, dataset, unfinished)
}
func noPool(datasets ...string) hosttest.Step {
	return list("", append([]string{"tank/k8s"}, datasets...), datasets...)
}

// The steps of a create.
func created(options ...string) hosttest.Step {
	return zfs(slices.Concat([]string{"create", "-s", "-V", "10000000"}, options, []string{unfinished})...)
}
func assigned(more ...string) hosttest.Step {
	return zfs(slices.Concat([]string{"set", "pillar-csi.bhyoo.com:volume=" + owner}, more, []string{unfinished})...)
}
func reserved() hosttest.Step  { return assigned("refreservation=auto") }
func renamed() hosttest.Step   { return zfs("rename", unfinished, dataset) }
func moded() hosttest.Step     { return zfs("set", "volmode=dev", dataset) }
func destroyed() hosttest.Step { return zfs("destroy", dataset) }
func removed() hosttest.Step   { return zfs("destroy", unfinished) }

func tank(t *testing.T, steps ...hosttest.Step) *Pool {
	return New(hosttest.Script(t, steps...), host.Root(t.TempDir()), Config{Pool: "tank", ParentDataset: "k8s"})
}

func request(bytes int64, properties map[string]string) storage.Spec {
	return storage.Spec{
		ID: storage.VolumeID{Pool: "tank", Name: "pvc-1"}, Owner: owner, Bytes: bytes, Backend: storage.ZFSZvol,
		ZFS: &storage.ZFSParams{Pool: "tank", ParentDataset: "k8s", Properties: properties},
	}
}

var want = storage.Volume{ID: storage.VolumeID{Pool: "tank", Name: "pvc-1"}, Owner: owner, Bytes: volsize, DevicePath: "/dev/zvol/tank/k8s/pvc-1"}

func TestPool_Create(t *testing.T) {
	tests := map[string]struct {
		properties map[string]string
		steps      []hosttest.Step
	}{
		"B-210 new": {nil, []hosttest.Step{looksAbsent(), created(), reserved(), renamed(), present(zvolRow)}},
		"B-210 properties as they are": {
			map[string]string{"volblocksize": "16k", "compression": "lz4", "refreservation": "none"},
			[]hosttest.Step{looksAbsent(), created("-o", "volblocksize=16k"), assigned("compression=lz4", "refreservation=none"), renamed(), present(sparseRow)},
		},
		"volmode by the final name": {
			map[string]string{"volmode": "dev"},
			[]hosttest.Step{looksAbsent(), created(), reserved(), renamed(), present(zvolRow), moded()},
		},
		"H-37 died before its volmode":              {map[string]string{"volmode": "dev"}, []hosttest.Step{looks(zvolRow), moded()}},
		"has its volmode":                           {map[string]string{"volmode": "geom"}, []hosttest.Step{looks(strings.Replace(zvolRow, "default", "full", 1))}},
		"B-212 there already, properties untouched": {map[string]string{"compression": "lz4"}, []hosttest.Step{looks(zvolRow)}},
		"H-37 left unfinished": {nil, []hosttest.Step{
			list(parentRow+strings.Replace(halfMade, dataset, unfinished, 1), []string{dataset}, dataset, unfinished),
			removed(), created(), reserved(), renamed(), present(zvolRow)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a destroy waits for a device
				got, err := tank(t, tt.steps...).Create(t.Context(), request(10000000, tt.properties))
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("Create = %v (-want +got):\n%s", err, diff)
				}
			})
		})
	}
}

func TestPool_Create_fails(t *testing.T) {
	tests := map[string]struct {
		steps []hosttest.Step
		bytes int64
		want  error
	}{
		"B-212 another size":        {[]hosttest.Step{looks(zvolRow)}, volsize + 1, storage.ErrConflict},
		"B-212 a filesystem":        {[]hosttest.Step{looks(fileRow)}, volsize, storage.ErrForeign},
		"B-217 somebody else's":     {[]hosttest.Step{looks(othersRow)}, volsize, storage.ErrForeign},
		"B-217 a copy":              {[]hosttest.Step{looks(copyRow)}, volsize, storage.ErrForeign},
		"B-213 more than available": {[]hosttest.Step{looksAbsent()}, 860141569, storage.ErrNoSpace},
		"more than any pool":        {[]hosttest.Step{looksAbsent()}, 1<<63 - 1, storage.ErrNoSpace},
		"B-213 zfs says so": {[]hosttest.Step{looksAbsent(), created(),
			fails(reserved(), "cannot set property for '"+unfinished+"': size is greater than available space"), removed()}, 10000000, storage.ErrNoSpace},
		"not even metadata has room": {[]hosttest.Step{looksAbsent(),
			fails(created(), "cannot create '"+unfinished+"': out of space")}, 10000000, storage.ErrNoSpace},
		"B-204 no pool": {[]hosttest.Step{noPool(dataset, unfinished)}, volsize, storage.ErrPrecondition},
		"a property of another type": {[]hosttest.Step{looksAbsent(), created(),
			fails(reserved(), "cannot set property for '"+unfinished+"': 'quota' does not apply to datasets of this type"), removed()}, 10000000, storage.ErrInvalid},
		"made by somebody meanwhile": {[]hosttest.Step{looksAbsent(), created(), reserved(),
			fails(renamed(), "cannot rename '"+unfinished+"': dataset already exists")}, 10000000, storage.ErrConflict},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := tank(t, tt.steps...).Create(t.Context(), request(tt.bytes, nil)); !errors.Is(err, tt.want) {
				t.Errorf("Create = %+v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// B-211: a zvol smaller than asked for is no success.
func TestPool_Create_readsBack(t *testing.T) {
	small := strings.Replace(zvolRow, "10010624", "9994240", 1)
	p := tank(t, looksAbsent(), created(), reserved(), renamed(), present(small))
	if got, err := p.Create(t.Context(), request(10000000, nil)); err == nil || errors.Is(err, storage.ErrConflict) {
		t.Errorf("Create = %+v, %v, want an unclassified error", got, err)
	}
}

func TestPool_check(t *testing.T) {
	change := func(f func(*storage.Spec)) storage.Spec {
		s := request(volsize, map[string]string{})
		f(&s)
		return s
	}
	property := func(key, value string) storage.Spec {
		return change(func(s *storage.Spec) { s.ZFS.Properties[key] = value })
	}
	tests := map[string]struct {
		spec storage.Spec
		want error
	}{
		"B-202 another parent":          {change(func(s *storage.Spec) { s.ZFS.ParentDataset = "" }), storage.ErrPrecondition},
		"B-203 no parameters":           {change(func(s *storage.Spec) { s.ZFS = nil }), storage.ErrInvalid},
		"B-203 another pool":            {change(func(s *storage.Spec) { s.ZFS.Pool = "other" }), storage.ErrInvalid},
		"B-203 another backend":         {change(func(s *storage.Spec) { s.Backend = storage.ZFSDataset }), storage.ErrInvalid},
		"B-218 too long a dataset":      {change(func(s *storage.Spec) { s.ID.Name = strings.Repeat("n", 247) }), storage.ErrInvalid},
		"B-218 the longest":             {change(func(s *storage.Spec) { s.ID.Name = strings.Repeat("n", 246) }), nil},
		"B-218 a snapshot":              {change(func(s *storage.Spec) { s.ID.Name = "a@b" }), storage.ErrInvalid},
		"N-50 an option for a property": {property("-u", "x"), storage.ErrInvalid},
		"N-50 two properties in one":    {property("sync=disabled,x", "x"), storage.ErrInvalid},
		"N-50 a newline":                {property("compression", "lz4\nx"), storage.ErrInvalid},
		"pillar's size":                 {property("volsize", "1"), storage.ErrInvalid},
		"pillar's mark":                 {property(mark, "pvc-2"), storage.ErrInvalid},
		"no device":                     {property("volmode", "none"), storage.ErrInvalid},
		"no volmode":                    {property("volmode", "raw"), storage.ErrInvalid},
		"pillar's reservation":          {property("refreservation", "auto"), storage.ErrInvalid},
		"a reservation of its own":      {property("reservation", "1G"), storage.ErrInvalid},
		"its column's name":             {property("reserv", "16E"), storage.ErrInvalid},
		"a reservation by its column":   {property("refreserv", "auto"), storage.ErrInvalid},
		"a file of the storage node":    {property("keylocation", "file:///etc/shadow"), storage.ErrInvalid},
		"sparse":                        {property("refreservation", "none"), nil},
		"a device without partitions":   {property("volmode", "dev"), nil},
		"a user property":               {property("com.example:owner", "me and you"), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tank(t).check(tt.spec); !errors.Is(err, tt.want) {
				t.Errorf("check(%+v) = %v, want %v", tt.spec, err, tt.want)
			}
		})
	}
}

func TestConfig_Check(t *testing.T) {
	tests := map[string]struct {
		cfg   Config
		legal bool
	}{
		"pool":             {Config{Pool: "tank"}, true},
		"parent":           {Config{Pool: "tank", ParentDataset: "k8s/volumes"}, true},
		"no pool":          {Config{}, false},
		"a space (H-38)":   {Config{Pool: "my pool"}, false},
		"a digit first":    {Config{Pool: "0tank"}, false},
		"an option":        {Config{Pool: "-f"}, false},
		"a path":           {Config{Pool: "tank/k8s"}, false},
		"a slash first":    {Config{Pool: "tank", ParentDataset: "/k8s"}, false},
		"a slash last":     {Config{Pool: "tank", ParentDataset: "k8s/"}, false},
		"dots":             {Config{Pool: "tank", ParentDataset: "../k8s"}, false},
		"a parent snapped": {Config{Pool: "tank", ParentDataset: "k8s@a"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tt.cfg.Check(); (err == nil) != tt.legal {
				t.Errorf("Check(%+v) = %v, want legal: %v", tt.cfg, err, tt.legal)
			}
		})
	}
}

// B-204: only zfs's word makes a volume absent, and only with its parent there.
func TestPool_Inspect(t *testing.T) {
	hung := errors.New("hung")
	tests := map[string]struct {
		steps []hosttest.Step
		want  error
	}{
		"there":                   {[]hosttest.Step{present(zvolRow)}, nil},
		"somebody else's":         {[]hosttest.Step{present(othersRow)}, nil},
		"a filesystem":            {[]hosttest.Step{present(fileRow)}, nil},
		"absent":                  {[]hosttest.Step{absent(), absent()}, storage.ErrNotFound},
		"appears":                 {[]hosttest.Step{absent(), present(zvolRow)}, nil},
		"pool not imported":       {[]hosttest.Step{noPool(dataset)}, storage.ErrPrecondition},
		"pool exported meanwhile": {[]hosttest.Step{absent(), noPool(dataset)}, storage.ErrPrecondition},
		"hung":                    {[]hosttest.Step{{Argv: present("").Argv, Err: hung}}, hung},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tank(t, tt.steps...).Inspect(t.Context(), "pvc-1")
			if !errors.Is(err, tt.want) || err != nil && tt.want != storage.ErrNotFound && errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Inspect = %+v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// N-8: text nobody knows, and answers that do not fit the question.
func TestPool_Inspect_unknown(t *testing.T) {
	tests := map[string]hosttest.Step{
		"no permission":        fails(present(""), "Permission denied the ZFS utilities must be run as root."),
		"no module":            fails(present(""), "The ZFS modules are not loaded.\nTry running '/sbin/modprobe zfs' as root to load them."),
		"one unknown line":     fails(list(parentRow, nil, dataset), "cannot open 'tank/k8s/pvc-1': dataset does not exist\ninternal error"),
		"another is absent":    fails(list(parentRow, nil, dataset), "cannot open 'tank/k8s/pvc-2': dataset does not exist"),
		"silent":               list(parentRow, nil, dataset),
		"there and absent":     list(parentRow+zvolRow, []string{dataset}, dataset),
		"a row cut off":        present("tank/k8s/pvc-1\tvolume\t1001"),
		"a size that is none":  present(strings.Replace(zvolRow, "10010624", "9.55M", 1)),
		"an I/O error":         fails(present(""), "cannot open 'tank/k8s/pvc-1': I/O error"),
		"nothing at all":       fails(present(""), ""),
		"absent and no parent": fails(list("", nil, dataset), "cannot open 'tank/k8s/pvc-1': dataset does not exist"),
	}
	for name, step := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := tank(t, step).Inspect(t.Context(), "pvc-1"); err == nil || errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Inspect = %+v, %v, want an error that is not ErrNotFound", got, err)
			}
		})
	}
}

func TestPool_Expand(t *testing.T) {
	set := func(property string) hosttest.Step { return zfs("set", property, dataset) }
	tests := map[string]struct {
		bytes int64
		steps []hosttest.Step
		want  error
	}{
		"B-216 grow":         {20000000, []hosttest.Step{present(zvolRow), list(parentRow, nil), set("volsize=20004864"), present(grownRow)}, nil},
		"B-452 again":        {20004864, []hosttest.Step{present(grownRow)}, nil},
		"B-452 smaller":      {10000000, []hosttest.Step{present(grownRow)}, storage.ErrOutOfRange},
		"a torn reservation": {20000000, []hosttest.Step{present(torn), set("refreservation=auto")}, nil},
		"B-453 no space":     {1 << 40, []hosttest.Step{present(zvolRow), list(parentRow, nil)}, storage.ErrNoSpace},
		"B-453 zfs says so": {20000000, []hosttest.Step{present(zvolRow), list(parentRow, nil),
			fails(set("volsize=20004864"), "cannot set property for 'tank/k8s/pvc-1': size is greater than available space")}, storage.ErrNoSpace},
		"not made bigger": {20000000, []hosttest.Step{present(zvolRow), list(parentRow, nil), set("volsize=20004864"), present(zvolRow)}, errAny},
		"absent":          {20000000, []hosttest.Step{absent(), absent()}, storage.ErrNotFound},
		"a filesystem":    {20000000, []hosttest.Step{present(fileRow)}, storage.ErrForeign},
		"a copy":          {20000000, []hosttest.Step{present(copyRow)}, storage.ErrForeign},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v, err := tank(t, tt.steps...).Expand(t.Context(), "pvc-1", owner, tt.bytes)
			if tt.want == errAny && err != nil {
				return
			}
			if !errors.Is(err, tt.want) || err == nil && v.Bytes != 20004864 {
				t.Errorf("Expand(%d) = %+v, %v, want %v", tt.bytes, v, err, tt.want)
			}
			if tt.want == storage.ErrOutOfRange && !strings.Contains(err.Error(), "cannot be decreased") {
				t.Errorf("Expand = %v, want it to say cannot be decreased", err)
			}
		})
	}
}

var errAny = errors.New("any error")

func TestPool_Delete(t *testing.T) {
	left := list(parentRow+strings.Replace(halfMade, dataset, unfinished, 1), []string{dataset}, dataset, unfinished)
	tests := map[string]struct {
		steps []hosttest.Step
		want  error
	}{
		"B-215 there":             {[]hosttest.Step{looks(zvolRow), destroyed(), looksAbsent()}, nil},
		"N-52 made by hand":       {[]hosttest.Step{looks(othersRow)}, storage.ErrForeign},
		"absent":                  {[]hosttest.Step{looksAbsent(), looksAbsent()}, nil},
		"left unfinished":         {[]hosttest.Step{left, removed(), looksAbsent()}, nil},
		"gone meanwhile":          {[]hosttest.Step{looks(zvolRow), fails(destroyed(), "cannot open 'tank/k8s/pvc-1': dataset does not exist"), looksAbsent()}, nil},
		"pool exported meanwhile": {[]hosttest.Step{looks(zvolRow), fails(destroyed(), "cannot open 'tank/k8s/pvc-1': dataset does not exist"), noPool(dataset, unfinished)}, storage.ErrPrecondition},
		"exported between":        {[]hosttest.Step{looksAbsent(), noPool(dataset, unfinished)}, storage.ErrPrecondition},
		"pool not imported":       {[]hosttest.Step{noPool(dataset, unfinished)}, storage.ErrPrecondition},
		"a filesystem":            {[]hosttest.Step{looks(fileRow)}, storage.ErrForeign},
		"another volume's":        {[]hosttest.Step{looks(copyRow)}, storage.ErrForeign},
		"H-81 snapshots": {[]hosttest.Step{looks(zvolRow), fails(destroyed(),
			"cannot destroy 'tank/k8s/pvc-1': volume has children\nuse '-r' to destroy the following datasets:\ntank/k8s/pvc-1@a")}, storage.ErrPrecondition},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a destroy waits for a device
				if err := tank(t, tt.steps...).Delete(t.Context(), "pvc-1", owner); !errors.Is(err, tt.want) {
					t.Errorf("Delete = %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// H-40: udev looks into a device for a moment; a mount stays.
func TestPool_Delete_busy(t *testing.T) {
	busy := fails(destroyed(), "cannot destroy 'tank/k8s/pvc-1': dataset is busy")
	tests := map[string]struct {
		times int
		want  error
	}{"for a moment": {2, nil}, "for good": {27, storage.ErrBusy}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				steps := []hosttest.Step{looks(zvolRow)}
				for range tt.times {
					steps = append(steps, busy)
				}
				if tt.want == nil {
					steps = append(steps, destroyed(), looksAbsent())
				}
				if err := tank(t, steps...).Delete(t.Context(), "pvc-1", owner); !errors.Is(err, tt.want) {
					t.Errorf("Delete = %v, want %v", err, tt.want)
				}
			})
		})
	}
}

func TestPool_List(t *testing.T) {
	all := zfs("list", "-H", "-p", "-r", "-d", "1", "-t", "volume", "-o",
		"name,type,volsize,volblocksize,used,available,refreservation,volmode,pillar-csi.bhyoo.com:volume", "tank/k8s")
	all.Stdout = zvolRow + strings.Replace(halfMade, dataset, unfinished, 1)
	got, err := tank(t, all).List(t.Context())
	if diff := cmp.Diff([]storage.Volume{want}, got); err != nil || diff != "" {
		t.Errorf("List = %v (-want +got):\n%s", err, diff)
	}
	gone := fails(all, "cannot open 'tank/k8s': dataset does not exist")
	if got, err := tank(t, gone).List(t.Context()); !errors.Is(err, storage.ErrPrecondition) || errors.Is(err, storage.ErrNotFound) {
		t.Errorf("List without the pool = %v, %v, want ErrPrecondition", got, err)
	}
}

func zpool(state string) hosttest.Step {
	return hosttest.Step{Argv: []string{"zpool", "list", "-H", "-o", "health", "tank"}, Stdout: state + "\n"}
}

func TestPool_Pool(t *testing.T) {
	got, err := tank(t, list(parentRow, nil)).Pool(t.Context())
	want := storage.Pool{Name: "tank", Type: "zfs", Parent: "k8s", Capacity: storage.Capacity{Total: 872273920, Available: 860141568}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Pool = %v (-want +got):\n%s", err, diff)
	}
	tests := map[string]struct {
		steps []hosttest.Step
		want  error
	}{
		"no pool":           {[]hosttest.Step{noPool(), fails(zpool(""), "cannot open 'tank': no such pool")}, storage.ErrNotFound},
		"no parent dataset": {[]hosttest.Step{noPool(), zpool("ONLINE")}, storage.ErrPrecondition},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := tank(t, tt.steps...).Pool(t.Context()); !errors.Is(err, tt.want) {
				t.Errorf("Pool = %+v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// B-283: every state but ONLINE is said in words.
func TestPool_Health(t *testing.T) {
	for _, state := range []string{"ONLINE", "DEGRADED", "FAULTED"} {
		err := tank(t, list(parentRow, nil), zpool(state)).Health(t.Context())
		if fine := err == nil; fine != (state == "ONLINE") || !fine && !strings.Contains(fmt.Sprint(err), "pool tank is "+state) {
			t.Errorf("Health of a pool that is %s = %v", state, err)
		}
	}
}

// A pool without room is one that does not work.
func TestPool_Health_full(t *testing.T) {
	full := strings.Replace(parentRow, "860141568", "0", 1)
	if err := tank(t, list(full, nil), zpool("ONLINE")).Health(t.Context()); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(fmt.Sprint(err), "tank/k8s has no room left") {
		t.Errorf("Health of a full pool = %v, want ErrPrecondition that says so", err)
	}
}

// H-26: nothing that would hang is started on a suspended pool.
func TestPool_suspended(t *testing.T) {
	p := tank(t)
	file := p.root.Path("proc/spl/kstat/zfs/tank/state")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("SUSPENDED\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, create := p.Create(t.Context(), request(volsize, nil))
	_, inspect := p.Inspect(t.Context(), "pvc-1")
	_, pool := p.Pool(t.Context())
	for call, err := range map[string]error{"Create": create, "Inspect": inspect, "Pool": pool,
		"Delete": p.Delete(t.Context(), "pvc-1", owner), "Health": p.Health(t.Context())} {
		if !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), "pool tank is SUSPENDED") {
			t.Errorf("%s = %v, want ErrPrecondition that says SUSPENDED", call, err)
		}
	}
}

// stuck is a Runner whose programs wait until their context ends.
type stuck struct{}

func (stuck) Run(ctx context.Context, name string, _ ...string) ([]byte, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("%s: %w", name, context.Cause(ctx))
}

// H-26: a tool that hangs ends with its deadline, and says so; those behind it wait no longer
// than their own.
func TestPool_hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(stuck{}, host.Root(t.TempDir()), Config{Pool: "tank"})
		for range commands {
			go func() { _, _ = p.Inspect(t.Context(), "pvc-1") }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), commandTimeout/2)
		defer cancel()
		if _, err := p.Inspect(ctx, "pvc-1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Inspect behind hanging ones = %v, want its own deadline", err)
		}
		if _, err := p.Inspect(t.Context(), "pvc-1"); !errors.Is(err, host.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Inspect = %v, want %v", err, host.ErrNoAnswer)
		}
	})
}
