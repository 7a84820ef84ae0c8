package staging

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/transport"
)

const id = "storage-1/nvmeof-tcp/lvm-lv/vg0/pvc-1"

func record() Record {
	loss := 600
	return Record{
		Schema: schema, VolumeID: id,
		Source: attach.Source{Protocol: transport.NVMeTCP, NVMe: &attach.NVMe{
			SubsysNQN: "nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1", Address: "10.0.0.1", Port: 4420, CtrlLossTmo: &loss,
		}},
		Access: Filesystem, FSType: "ext4", MountOptions: []string{"noatime"}, StagingPath: "/staging",
		StagedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

func open(t *testing.T) *Records {
	t.Helper()
	r, err := Open(filepath.Join(t.TempDir(), "node"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecords(t *testing.T) {
	r := open(t)
	if _, found, err := r.Read(id); found || err != nil {
		t.Errorf("Read before Write = %v, %v, want none", found, err)
	}
	if err := r.Write(record()); err != nil {
		t.Fatal(err)
	}
	got, found, err := r.Read(id)
	if err != nil || !found {
		t.Fatalf("Read = %v, %v", found, err)
	}
	if diff := cmp.Diff(record(), got); diff != "" {
		t.Errorf("record read back (-want +got):\n%s", diff)
	}
	info, err := os.Stat(r.path(id))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v, want 0600", info.Mode(), err)
	}
	if err := errors.Join(r.Remove(id), r.Remove(id)); err != nil {
		t.Error(err)
	}
	if _, found, err := r.Read(id); found || err != nil {
		t.Errorf("Read after Remove = %v, %v, want none", found, err)
	}
}

func TestRecords_Unusable(t *testing.T) {
	r := open(t)
	if err := r.Write(record()); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(r.path(id))
	if err != nil {
		t.Fatal(err)
	}
	swap := func(old, new string) string { return strings.Replace(string(good), old, new, 1) }
	tests := map[string]string{
		"empty":             "",
		"cut":               string(good[:len(good)/2]),
		"not JSON":          "\x00\x00\x00",
		"another volume's":  swap("vg0/pvc-1", "vg0/pvc-2"),
		"a later schema":    swap(`"schema_version": 1`, `"schema_version": 2`),
		"a field too many":  swap(`"schema_version"`, `"x": 1, "schema_version"`),
		"two records":       string(good) + string(good),
		"relative path":     swap(`"/staging"`, `"staging"`),
		"no connection":     swap(`"subsys_nqn": "nqn.`, `"subsys_nqn": "x.`),
		"no access type":    swap(`"Filesystem"`, `""`),
		"unknown transport": swap(`"nvmeof-tcp",`, `"carrier-pigeon",`),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if text == string(good) {
				t.Fatal("the test changes nothing")
			}
			if err := os.WriteFile(r.path(id), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, found, err := r.Read(id); err == nil {
				t.Errorf("Read = %+v, %v, want an error", got, found)
			}
		})
	}
}

func TestRecords_NotAFile(t *testing.T) {
	r := open(t)
	if err := os.Mkdir(r.path(id), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Read(id); err == nil {
		t.Error("Read of a directory = nil, want an error")
	}
}

func TestRecords_WriteRefuses(t *testing.T) {
	bad := record()
	bad.StagingPath = ""
	if err := open(t).Write(bad); err == nil {
		t.Error("Write of a record nobody could read again = nil, want an error")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema_version":1,"volume_id":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if rec, err := decode(data, id); err == nil && (rec.VolumeID != id || rec.StagingPath == "") {
			t.Errorf("decode(%q) = %+v", data, rec)
		}
	})
}
