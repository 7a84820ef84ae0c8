package nvmf

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/transport"
)

// tree makes a sysfs of "path value" lines; a path that ends in a slash is a directory.
func tree(lines string) fstest.MapFS {
	sys := fstest.MapFS{"class": {Mode: fs.ModeDir | 0o755}}
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			sys[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
		} else if name != "" {
			sys[name] = &fstest.MapFile{Data: []byte(value + "\n"), Mode: 0o644}
		}
	}
	return sys
}

// controllerAt is a controller of Linux 6.1, as recorded.
func controllerAt(name, state, nqn, hostNQN string) string {
	dir := path.Join("class/nvme", name)
	return dir + "/transport tcp\n" + dir + "/state " + state + "\n" + dir + "/subsysnqn " + nqn + "\n" +
		dir + "/hostnqn " + hostNQN + "\n" + dir + "/address traddr=10.66.0.11,trsvcid=4420,src_addr=10.66.0.21\n"
}

func disk(dir, nsid, dev, hidden string) string {
	return dir + "/nsid " + nsid + "\n" + dir + "/dev " + dev + "\n" + dir + "/hidden " + hidden + "\n" +
		dir + "/uuid 922be737-69de-8109-be3a-3992a336e7c5\n"
}

// multipathOn is how Linux shows one connected subsystem with native multipath.
var multipathOn = controllerAt("nvme0", "live", testNQN, testHost) +
	disk("class/nvme/nvme0/nvme0c0n1", "1", "259:1", "1") +
	"class/nvme-subsystem/nvme-subsys0/subsysnqn " + testNQN + "\n" +
	"class/nvme-subsystem/nvme-subsys0/nvme0/\n" +
	disk("class/nvme-subsystem/nvme-subsys0/nvme0n1", "1", "259:0", "0")

// multipathOff is how it does without.
var multipathOff = controllerAt("nvme1", "live", testNQN, testHost) +
	disk("class/nvme/nvme1/nvme1n1", "1", "259:3", "0") +
	"class/nvme-subsystem/nvme-subsys1/subsysnqn " + testNQN + "\n"

// local is a PCIe drive, which has neither host NQN nor portal.
const local = "class/nvme/nvme9/transport pcie\nclass/nvme/nvme9/state live\n" +
	"class/nvme-subsystem/nvme-subsys9/subsysnqn nqn.2014.08.org.nvmexpress:local\n" +
	"class/nvme-subsystem/nvme-subsys9/nvme9n1/nsid 1\n"

func TestFindNamespace(t *testing.T) {
	found := func(dir, name string, minor uint32) *namespace {
		return &namespace{dir: dir, name: name, uuid: "922be737-69de-8109-be3a-3992a336e7c5", major: 259, minor: minor}
	}
	tests := map[string]struct {
		sys  string
		want *namespace
		ok   bool
	}{
		"native multipath on":  {multipathOn + local, found("class/nvme-subsystem/nvme-subsys0/nvme0n1", "nvme0n1", 0), true},
		"native multipath off": {multipathOff + local, found("class/nvme/nvme1/nvme1n1", "nvme1n1", 3), true},
		"no NVMe at all":       {"", nil, true},
		"only a local drive":   {local, nil, true},
		"another subsystem":    {strings.ReplaceAll(multipathOn, "vg0.pvc-1", "vg0.pvc-10"), nil, true},
		"another host":         {strings.ReplaceAll(multipathOff, testHost, testHost[:len(testHost)-1]+"2"), nil, true},
		"namespace 2":          {strings.ReplaceAll(multipathOn, "nsid 1", "nsid 2"), nil, true},
		"only a path so far":   {strings.ReplaceAll(multipathOn, "nvme-subsys0/nvme0n1", "nvme-subsys0/other"), nil, true},
		"two devices":          {multipathOn + multipathOff, nil, false},
		"numbers unreadable":   {strings.ReplaceAll(multipathOn, "259:0", "259"), nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := findNamespace(tree(tc.sys), testNQN, testHost)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(namespace{})); diff != "" || (err == nil) != tc.ok {
				t.Errorf("findNamespace: %v, want ok %v (-want +got):\n%s", err, tc.ok, diff)
			}
		})
	}
}

// late is a sysfs in which a file is missing for its first reads, as the attributes of an
// object are that the kernel is still making.
type late struct {
	fs.FS
	name  string
	reads int
}

func (l *late) Open(name string) (fs.File, error) {
	if name == l.name && l.reads > 0 {
		l.reads--
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return l.FS.Open(name)
}

func TestFindNamespace_attributesFollow(t *testing.T) {
	for _, attr := range []string{
		"class/nvme/nvme1/nvme1n1/dev", "class/nvme/nvme1/nvme1n1/nsid",
		"class/nvme/nvme1/state", "class/nvme-subsystem/nvme-subsys1/subsysnqn",
	} {
		t.Run(attr, func(t *testing.T) {
			got, err := findNamespace(&late{tree(multipathOff), attr, 3}, testNQN, testHost)
			if err != nil || got == nil || got.name != "nvme1n1" {
				t.Errorf("findNamespace = %+v, %v, want nvme1n1", got, err)
			}
		})
	}
}

func TestControllers(t *testing.T) {
	tests := map[string]struct {
		sys  fs.FS
		want []controller
		ok   bool
	}{
		"one":                     {tree(multipathOn + local), []controller{{"nvme0", "live", testNQN, testHost, testPortal}}, true},
		"module not loaded":       {tree(""), nil, true},
		"sysfs not mounted":       {fstest.MapFS{}, nil, false},
		"attribute missing":       {tree(strings.Replace(multipathOn, "nvme0/state", "nvme0/other", 1)), nil, false},
		"first connect under way": {tree(controllerAt("nvme0", "connecting", "(null)", testHost)), []controller{{"nvme0", "connecting", "(null)", testHost, testPortal}}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := controllers(tc.sys)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(controller{})); diff != "" || (err == nil) != tc.ok {
				t.Errorf("controllers: %v, want ok %v (-want +got):\n%s", err, tc.ok, diff)
			}
		})
	}
}

func TestParseAddress(t *testing.T) {
	tests := map[string]struct {
		in   string
		want transport.Portal
		ok   bool
	}{
		"ipv4":       {"traddr=10.0.0.5,trsvcid=4420,src_addr=10.0.0.9", transport.Portal{Address: "10.0.0.5", Port: 4420}, true},
		"ipv6":       {"traddr=fd00::0011,trsvcid=4420", transport.Portal{Address: "fd00::11", Port: 4420}, true},
		"no port":    {"traddr=10.0.0.5", transport.Portal{}, false},
		"no address": {"trsvcid=4420", transport.Portal{}, false},
		"pcie":       {"0000:01:00.0", transport.Portal{}, false},
		"big port":   {"traddr=10.0.0.5,trsvcid=70000", transport.Portal{}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseAddress(tc.in)
			if (err == nil) != tc.ok || err == nil && got != tc.want {
				t.Errorf("parseAddress(%q) = %v, %v, want %v, ok %v", tc.in, got, err, tc.want, tc.ok)
			}
		})
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("traddr=10.0.0.5,trsvcid=4420,src_addr=10.0.0.9")
	f.Add("traddr=fd00::11,trsvcid=4420,host_iface=eth0")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseAddress(s)
		if err == nil && (p.Address == "" || p.Port == 0) {
			t.Errorf("parseAddress(%q) = %v", s, p)
		}
	})
}

// FuzzSysfs throws attribute texts at the readers: they answer or fail, and what they
// answer names the subsystem asked for.
func FuzzSysfs(f *testing.F) {
	f.Add("tcp", "live", testNQN, "traddr=10.0.0.5,trsvcid=4420", "1", "259:0")
	f.Add("pcie", "", "(null)", "0000:01:00.0", "2", "")
	f.Fuzz(func(t *testing.T, kind, state, nqn, address, nsid, dev string) {
		sys := fstest.MapFS{}
		for name, value := range map[string]string{
			"transport": kind, "state": state, "subsysnqn": nqn, "hostnqn": testHost, "address": address,
			"nvme0n1/nsid": nsid, "nvme0n1/dev": dev, "nvme0n1/hidden": "0", "nvme0n1/uuid": "x",
		} {
			sys["class/nvme/nvme0/"+name] = &fstest.MapFile{Data: []byte(value)}
		}
		ns, err := findNamespace(sys, testNQN, testHost)
		if ns != nil && (err != nil || strings.TrimSpace(nqn) != testNQN || strings.TrimSpace(nsid) != "1") {
			t.Errorf("findNamespace = %+v, %v for subsysnqn %q nsid %q", ns, err, nqn, nsid)
		}
	})
}
