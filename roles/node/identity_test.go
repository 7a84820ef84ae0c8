package node

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/mount"
)

// rootWith answers a root that holds the files.
func rootWith(t *testing.T, files map[string]string) host.Root {
	t.Helper()
	root := host.Root(t.TempDir())
	for name, text := range files {
		path := root.Path(name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const hostUUID = "0d1f9c1e-2b3a-4c5d-8e9f-001122334455"

func TestReadNVMe(t *testing.T) {
	tests := map[string]struct {
		files   map[string]string
		nqn, id string // regular expressions
	}{
		"both there":   {map[string]string{"etc/nvme/hostnqn": "nqn.2014-08.org.nvmexpress:uuid:x\n", "etc/nvme/hostid": hostUUID}, `^nqn\.2014-08\.org\.nvmexpress:uuid:x$`, "^" + hostUUID + "$"},
		"none there":   {nil, `^nqn\.2014-08\.org\.nvmexpress:uuid:[0-9a-f-]{36}$`, `^[0-9a-f-]{36}$`},
		"ID empty":     {map[string]string{"etc/nvme/hostnqn": "nqn.2014-08.org.nvmexpress:uuid:x", "etc/nvme/hostid": " \n"}, `:x$`, `^[0-9a-f-]{36}$`},
		"NQN missing":  {map[string]string{"etc/nvme/hostid": hostUUID}, `:uuid:[0-9a-f-]{36}$`, "^" + hostUUID + "$"},
		"own NQN form": {map[string]string{"etc/nvme/hostnqn": "nqn.2020-01.org.example:me", "etc/nvme/hostid": hostUUID}, `:me$`, hostUUID},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := rootWith(t, tc.files)
			first, err := readNVMe(root)
			if err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(tc.nqn).MatchString(first.HostNQN) || !regexp.MustCompile(tc.id).MatchString(first.HostID) {
				t.Errorf("identity = %+v, want %s and %s", first, tc.nqn, tc.id)
			}
			if again, err := readNVMe(root); err != nil || again != first {
				t.Errorf("after a restart = %+v, %v, want %+v", again, err, first)
			}
		})
	}
}

func TestReadNVMe_OneUUID(t *testing.T) {
	root := rootWith(t, nil)
	id, err := readNVMe(root)
	if err != nil || !strings.HasSuffix(id.HostNQN, ":uuid:"+id.HostID) {
		t.Errorf("identity = %+v, %v, want one UUID in both", id, err)
	}
	if text, err := os.ReadFile(root.Path("etc/nvme/hostnqn")); err != nil || string(text) != id.HostNQN+"\n" {
		t.Errorf("file holds %q, %v", text, err)
	}
}

func TestIdentity_Malformed(t *testing.T) {
	tests := map[string]struct {
		file, text string
		read       func(host.Root) error
	}{
		"host NQN": {"etc/nvme/hostnqn", "my-host", func(r host.Root) error { _, err := readNVMe(r); return err }},
		"host ID":  {"etc/nvme/hostid", "1234", func(r host.Root) error { _, err := readNVMe(r); return err }},
		"IQN":      {"etc/iscsi/initiatorname.iscsi", "InitiatorName=my host\n", func(r host.Root) error { _, err := readIQN(r); return err }},
		"IQN empty": {"etc/iscsi/initiatorname.iscsi", "InitiatorName=\n",
			func(r host.Root) error { _, err := readIQN(r); return err }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := rootWith(t, map[string]string{tc.file: tc.text})
			if err := tc.read(root); err == nil || !strings.Contains(err.Error(), tc.file) {
				t.Errorf("error = %v, want one that names %s", err, tc.file)
			}
			if text, err := os.ReadFile(root.Path(tc.file)); err != nil || string(text) != tc.text {
				t.Errorf("file holds %q now, %v", text, err)
			}
		})
	}
}

func TestReadIQN(t *testing.T) {
	made := `^iqn\.2026-01\.com\.bhyoo\.pillar-csi:node\.[0-9a-f]{32}$`
	tests := map[string]struct {
		files map[string]string
		want  string
		keeps string
	}{
		"there":     {map[string]string{"etc/iscsi/initiatorname.iscsi": "# c\n InitiatorName=iqn.2020-01.org.example:me \n"}, `^iqn\.2020-01\.org\.example:me$`, "# c\n"},
		"no file":   {nil, made, ""},
		"no line":   {map[string]string{"etc/iscsi/initiatorname.iscsi": "# by hand"}, made, "# by hand\n"},
		"commented": {map[string]string{"etc/iscsi/initiatorname.iscsi": "#InitiatorName=iqn.x\n"}, made, "#InitiatorName=iqn.x\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := rootWith(t, tc.files)
			first, err := readIQN(root)
			if err != nil || !regexp.MustCompile(tc.want).MatchString(first) {
				t.Fatalf("readIQN = %q, %v, want %s", first, err, tc.want)
			}
			if again, err := readIQN(root); err != nil || again != first {
				t.Errorf("after a restart = %q, %v, want %q", again, err, first)
			}
			if text, err := os.ReadFile(root.Path("etc/iscsi/initiatorname.iscsi")); err != nil || !strings.HasPrefix(string(text), tc.keeps) {
				t.Errorf("file holds %q, %v, want %q kept", text, err, tc.keeps)
			}
		})
	}
}

// api fails a few patches, then takes one.
type api struct {
	fails int
	types []types.PatchType
	body  []byte
}

func (a *api) Patch(_ context.Context, _ string, pt types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*storagev1.CSINode, error) {
	a.types, a.body = append(a.types, pt), data
	if len(a.types) <= a.fails {
		return nil, errors.New(`csinodes.storage.k8s.io "worker-1" not found`)
	}
	return &storagev1.CSINode{}, nil
}

func TestPublishIdentity(t *testing.T) {
	for name, iqn := range map[string]any{"with iSCSI": "iqn.x", "without": nil} {
		t.Run(name, func(t *testing.T) {
			a := &api{fails: 2}
			text, _ := iqn.(string)
			publishIdentity(t.Context(), a, "worker-1", "nqn.x", text, zap.NewNop())
			if len(a.types) != 3 || a.types[2] != types.MergePatchType {
				t.Errorf("patches = %v, want three merge patches", a.types)
			}
			var got any
			if err := json.Unmarshal(a.body, &got); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"metadata": map[string]any{"annotations": map[string]any{
				attach.Prefix + "nvmeof-host-nqn": "nqn.x", attach.Prefix + "iscsi-initiator-iqn": iqn,
			}}}
			if diff := cmp.Diff(any(want), got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPublishIdentity_Stops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	publishIdentity(ctx, &api{fails: 1 << 30}, "worker-1", "nqn.x", "", zap.NewNop()) // returns
}

func TestNodeGetInfo(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  map[string]string
	}{
		"NVMe/TCP loaded": {map[string]string{"sys/module/nvme_tcp/x": ""}, map[string]string{attach.Prefix + "node-plugin": "true", attach.Prefix + "nvmeof": "true"}},
		"not loaded":      {nil, map[string]string{attach.Prefix + "node-plugin": "true"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := &Server{cfg: Config{Name: "worker-1", Root: rootWith(t, tc.files)}}
			got, err := s.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
			if err != nil || got.NodeId != "worker-1" || got.MaxVolumesPerNode != 0 {
				t.Errorf("NodeGetInfo = %v, %v", got, err)
			}
			if diff := cmp.Diff(tc.want, got.GetAccessibleTopology().GetSegments()); diff != "" {
				t.Errorf("segments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPropagated(t *testing.T) {
	root := mount.Entry{Path: "/", Shared: true}
	pods, csiDir := mount.Entry{Path: "/k/pods", Shared: true}, mount.Entry{Path: "/k/plugins/kubernetes.io/csi", Shared: true}
	private := func(e mount.Entry) mount.Entry { e.Shared = false; return e }
	tests := map[string]struct {
		table mount.Table
		ok    bool
	}{
		"on the host":           {mount.Table{root}, true},
		"in a pod":              {mount.Table{private(root), pods, csiDir}, true},
		"nothing mounted in":    {mount.Table{private(root)}, false},
		"pods private":          {mount.Table{private(root), private(pods), csiDir}, false},
		"staging not mounted":   {mount.Table{private(root), pods}, false},
		"another kubelet root":  {mount.Table{private(root), {Path: "/var/k/pods", Shared: true}}, false},
		"hidden by a later one": {mount.Table{root, pods, csiDir, private(pods)}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := propagated(&machine{table: tc.table}, "/k"); (err == nil) != tc.ok {
				t.Errorf("propagated = %v, want ok %v", err, tc.ok)
			}
		})
	}
}

func TestReady(t *testing.T) {
	fabrics := rootWith(t, map[string]string{"dev/nvme-fabrics": ""})
	tests := map[string]struct {
		root host.Root
		dir  string
		ok   bool
	}{
		"all there":           {fabrics, t.TempDir(), true},
		"no protocol":         {rootWith(t, nil), t.TempDir(), false},
		"no record directory": {fabrics, "/nonexistent", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := ready(tc.root, tc.dir); (err == nil) != tc.ok {
				t.Errorf("ready = %v, want ok %v", err, tc.ok)
			}
		})
	}
}
