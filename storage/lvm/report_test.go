package lvm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

// As LVM 2.03.16 prints them.
const (
	owner  = "0b1e0c62-3a5e-4f62-9d0a-3f1f0f8c1a01"
	vgUUID = "190GcF-gY3G-8Fii-Wa4A-tsXj-ioGo-ULMh9j"
	lvUUID = "W0zH2n-2lDO-oad0-skp2-5AXP-dDtr-8NJMbT"
	dmUUID = "LVM-190GcFgY3G8FiiWa4AtsXjioGoULMh9jW0zH2n2lDOoad0skp25AXPdDtr8NJMbT"
	noLVs  = `{ "report": [ { "lv": [ ] } ] }`
)

func lvRow(name string, size int64, layout, role, tags, active, major, minor string) string {
	pool := ""
	if layout == "thin,sparse" {
		pool = "tp0"
	}
	return fmt.Sprintf(`{"lv_name":"%s", "lv_size":"%d", "lv_layout":"%s", "lv_role":"%s", "pool_lv":"%s", "lv_tags":"%s", "vg_uuid":"%s", "lv_uuid":"%s", "lv_active":"%s", "lv_kernel_major":"%s", "lv_kernel_minor":"%s"}`,
		name, size, layout, role, pool, tags, vgUUID, lvUUID, active, major, minor)
}

// plain is a finished, active linear LV.
func plain(name string, size int64) string {
	return lvRow(name, size, "linear", "public", ownerTag+owner, "active", "254", "3")
}

func unfinished(name string, size int64) string {
	return lvRow(name, size, "linear", "public", ownerTag+owner+","+incompleteTag, "active", "254", "3")
}

func inactive(name string, size int64) string {
	return lvRow(name, size, "linear", "public", ownerTag+owner, "", "-1", "-1")
}

// strangers is an LV made by hand.
func strangers(name string) string {
	return lvRow(name, 2*extent, "linear", "public", "", "active", "254", "3")
}

func lvsOf(rows ...string) string {
	doc := `{ "report": [ { "lv": [ `
	for i, r := range rows {
		if i > 0 {
			doc += ", "
		}
		doc += r
	}
	return doc + ` ] } ] }`
}

func vgOf(size, free int64) string {
	return fmt.Sprintf(`{ "report": [ { "vg": [ {"vg_name":"vg0", "vg_size":"%d", "vg_free":"%d", "vg_extent_size":"4194304", "vg_missing_pv_count":"0", "vg_mda_size":"1044480", "vg_mda_free":"519680"} ] } ] }`, size, free)
}

func TestParseLVs(t *testing.T) {
	active := report{name: "a", tags: []string{ownerTag + owner}, size: 8 << 20, layout: "linear", role: "public", dmUUID: dmUUID, active: true, major: 254, minor: 3}
	off := report{name: "a", tags: []string{ownerTag + owner}, size: 8 << 20, layout: "linear", role: "public", dmUUID: dmUUID}
	tagged := active
	tagged.tags = []string{"owner", incompleteTag}
	tests := map[string]struct {
		in   string
		want []report
	}{
		"empty group": {noLVs, []report{}},
		"active":      {lvsOf(plain("a", 8<<20)), []report{active}},
		"inactive":    {lvsOf(inactive("a", 8<<20)), []report{off}},
		"tagged":      {lvsOf(lvRow("a", 8<<20, "linear", "public", "owner,"+incompleteTag, "active", "254", "3")), []report{tagged}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseLVs([]byte(tt.in))
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(report{})); err != nil || diff != "" {
				t.Errorf("parseLVs = %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// B-204: output that is not what it should be is an error, never an empty group.
func TestParse_unknownOutput(t *testing.T) {
	for _, in := range []string{
		"", "{}", "null", `{"report":[]}`, `{"report":[{}]}`, `{"report":[{"vg":[]}]}`, `{"report":[{"lv":null}]}`,
		`{"report":[{"lv":[]},{"lv":[]}]}`, `{"report":[{"lv":[{}]}]}`, noLVs + "x",
		lvsOf(lvRow("a", -1, "linear", "public", "", "", "-1", "-1")),
		lvsOf(lvRow("a", 1, "", "public", "", "", "-1", "-1")),
		lvsOf(lvRow("a", 1, "linear", "public", "", "active", "-1", "-1")),
		lvsOf(strings.ReplaceAll(lvRow("a", 1, "thin,sparse", "public", "", "", "-1", "-1"), "tp0", "")),
	} {
		if got, err := parseLVs([]byte(in)); err == nil {
			t.Errorf("parseLVs(%s) = %v, want an error", in, got)
		}
	}
	for _, in := range []string{"", "{}", `{"report":[{"vg":[]}]}`, `{"report":[{"vg":[{"vg_name":"vg1"}]}]}`, vgOf(-1, 0)} {
		if got, err := parseVG([]byte(in), "vg0"); err == nil {
			t.Errorf("parseVG(%s) = %v, want an error", in, got)
		}
	}
}

func FuzzParseLVs(f *testing.F) {
	f.Add([]byte(lvsOf(plain("a", 8<<20), inactive("b", 4<<20))))
	f.Fuzz(func(t *testing.T, data []byte) {
		lvs, err := parseLVs(data)
		for _, lv := range lvs {
			if err == nil && (lv.name == "" || lv.size < 0 || len(lv.dmUUID) != 68) {
				t.Errorf("parseLVs(%q) let %+v through", data, lv)
			}
		}
	})
}

// The texts of LVM 2.03.16. Only these have a kind; exit status 5 alone has none.
func TestClassify(t *testing.T) {
	tests := map[string]struct {
		stderr string
		want   error
	}{
		"no group":          {"Volume group \"vg8\" not found\n  Cannot process volume group vg8", errNoGroup},
		"no LV":             {`Failed to find logical volume "vg9/none"`, storage.ErrNotFound},
		"LV exists":         {`Logical Volume "a" already exists in volume group "vg9"`, storage.ErrConflict},
		"full":              {"Rounding up size to full physical extent <74.51 GiB\n  Volume group \"vg9\" has insufficient free space (253 extents): 19074 required.", storage.ErrNoSpace},
		"full, other words": {"Insufficient free space: 19074 extents needed, but only 253 available", storage.ErrNoSpace},
		"fragmented":        {"Insufficient suitable allocatable extents for logical volume b: 3 more required", storage.ErrNoSpace},
		"thin pool full":    {"WARNING: Thin pool tv/tp is out of data space.\n  Cannot create new thin volume, free space in thin pool tv/tp reached threshold.", storage.ErrNoSpace},
		"thin pool lost":    {"WARNING: Thin pool tv/tp has unexpected transaction id 0, expecting 1.\n  Cannot create new thin volume, free space in thin pool tv/tp reached threshold.", errDamaged},
		"another thin pool": {"Thin pool tv-tp-tpool (254:2) transaction_id is 0, while expected 1.", errDamaged},
		"thin_check":        {"Check of pool tv/tp failed (status:1). Manual repair required!", errDamaged},
		"open":              {"File descriptor 7 (/dev/x) leaked on lvremove invocation.\n  Logical volume vg9/a in use.", storage.ErrBusy},
		"a disk is missing": {"WARNING: VG vg9 is missing PV x (last written to /dev/sdb).\n  Cannot change VG vg9 while PVs are missing.\n  See vgreduce --removemissing and vgextend --restoremissing.\n  Cannot process volume group vg9", storage.ErrPrecondition},
		"its disk, too":     {"WARNING: VG vg9 is missing PV x (last written to /dev/sdb).\n  Refusing activation of partial LV vg9/a.  Use '--activationmode partial' to override.", storage.ErrPrecondition},
		"two of the name":   {"WARNING: VG name vg9 is used by VGs x and y.\n  Fix duplicate VG names with vgrename uuid, a device filter, or system IDs.\n  Multiple VGs found with the same name: skipping vg9", storage.ErrPrecondition},
		"claimed":           {"Logical volume vg9/a is used by another device.", storage.ErrBusy},
		"mounted":           {"Logical volume vg9/a contains a filesystem in use.", storage.ErrBusy},
	}
	kinds := []error{errNoGroup, storage.ErrNotFound, storage.ErrConflict, storage.ErrNoSpace, storage.ErrBusy, storage.ErrPrecondition, errDamaged}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := classify(&host.ExitError{Argv: []string{"lvs"}, Code: 5, Stderr: tt.stderr})
			for _, k := range kinds {
				if got := errors.Is(err, k); got != (k == tt.want) {
					t.Errorf("classify(%q) is %v: %v", tt.stderr, k, got)
				}
			}
		})
	}
	// N-8: text nobody knows, and look-alikes.
	for _, stderr := range []string{
		"", "Permission denied", "Couldn't find device with uuid x.", "Cannot process volume group vg9",
		"Can't get lock for vg9", "WARNING: Volume group \"vg9\" is not consistent.", "not found",
		"VG vg9 is missing PV x (last written to /dev/sdb).",
	} {
		err := classify(&host.ExitError{Argv: []string{"lvs"}, Code: 5, Stderr: stderr})
		for _, k := range kinds {
			if errors.Is(err, k) {
				t.Errorf("classify(%q) is %v, want no kind", stderr, k)
			}
		}
	}
}

// B-226, N-50.
func TestCheckName(t *testing.T) {
	for _, name := range []string{"pvc-0b8c", "a", "A.b+c_d-e", "_x", ".hidden", "lvol0", long(127), "my_snapshot", "x_mlo"} {
		if err := CheckName(name); err != nil {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
	for _, name := range []string{
		"", "-x", "--yes", ".", "..", "a/b", "a b", "a\n", "a\x00", "é", "@tag", "a:b", long(128),
		"snapshot1", "pvmove0", "a_cdata", "a_cmeta", "a_corig", "a_mlog", "a_mimage_0", "lvol0_pmspare",
		"a_rimage_0", "a_rmeta_0", "a_tdata", "a_tmeta", "a_vorigin", "a_vdata",
	} {
		if err := CheckName(name); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("CheckName(%q) = %v, want ErrInvalid", name, err)
		}
	}
}

func long(n int) string { return fmt.Sprintf("%0*d", n, 0) }

// B-223.
func TestRoundUp(t *testing.T) {
	const extent = 4 << 20
	for in, want := range map[int64]int64{1: extent, extent - 1: extent, extent: extent, extent + 1: 2 * extent} {
		if got, err := roundUp(in, extent); got != want || err != nil {
			t.Errorf("roundUp(%d) = %d, %v, want %d", in, got, err, want)
		}
	}
	if got, err := roundUp(1<<63-1, extent); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("roundUp of the largest number = %d, %v, want ErrNoSpace", got, err)
	}
}

// Whose an LV is, is said once or not at all.
func TestReport_owner(t *testing.T) {
	tests := map[string]struct {
		tags []string
		want storage.Owner
	}{
		"none":          {nil, ""},
		"others' tags":  {[]string{"backup", incompleteTag}, ""},
		"one":           {[]string{"backup", ownerTag + owner, incompleteTag}, owner},
		"two":           {[]string{ownerTag + owner, ownerTag + "another"}, ""},
		"one with text": {[]string{"x" + ownerTag + owner}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (report{tags: tt.tags}).owner(); got != tt.want {
				t.Errorf("owner of %q = %q, want %q", tt.tags, got, tt.want)
			}
		})
	}
}
