package nvmf

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/transport"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write testdata/*.golden from what the code does now")

const (
	testNQN  = "nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1"
	testHost = "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111"
)

var (
	testConfig = Config{HostNQN: testHost, HostID: "11111111-1111-4111-8111-111111111111"}
	testPortal = transport.Portal{Address: "10.66.0.11", Port: 4420}
)

func testTarget(change func(*Target)) Target {
	t := Target{NQN: testNQN, Portal: testPortal}
	if change != nil {
		change(&t)
	}
	return t
}

func TestOptions(t *testing.T) {
	tests := map[string]Target{
		"nothing_set": testTarget(nil),
		"everything_set": testTarget(func(t *Target) {
			t.QueueSize, t.CtrlLossTmo, t.ReconnectDelay = new(128), new(600), new(10)
			t.HdrDigest, t.DataDigest = true, true
		}),
		"zero_is_a_value": testTarget(func(t *Target) { t.CtrlLossTmo = new(0) }),
		"no_time_limit":   testTarget(func(t *Target) { t.CtrlLossTmo = new(-1) }),
		"data_digest":     testTarget(func(t *Target) { t.DataDigest = true }),
		"ipv6":            testTarget(func(t *Target) { t.Portal.Address = "fd00::11" }),
	}
	for name, target := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := options(target, testConfig)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" || err != nil {
				t.Errorf("options: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestOptions_refuses(t *testing.T) {
	tests := map[string]struct {
		target Target
		cfg    Config
	}{
		"a comma in the NQN":    {testTarget(func(t *Target) { t.NQN += ",tos=1" }), testConfig},
		"no NQN":                {testTarget(func(t *Target) { t.NQN = "" }), testConfig},
		"a name for an address": {testTarget(func(t *Target) { t.Portal.Address = "storage-1" }), testConfig},
		"no port":               {testTarget(func(t *Target) { t.Portal.Port = 0 }), testConfig},
		"no host NQN":           {testTarget(nil), Config{HostID: testConfig.HostID}},
		"no host ID":            {testTarget(nil), Config{HostNQN: testHost}},
		"a host ID and more":    {testTarget(nil), Config{HostNQN: testHost, HostID: testConfig.HostID + ",tls"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := options(tc.target, tc.cfg); !errors.Is(err, transport.ErrInvalid) {
				t.Errorf("options = %q, %v, want ErrInvalid", got, err)
			}
		})
	}
}

func TestParseReply(t *testing.T) {
	tests := map[string]struct {
		in   string
		want int
		ok   bool
	}{
		"connected":       {"instance=3,cntlid=1\n", 3, true},
		"before a write":  {"instance=-1,cntlid=-1,transport=%s,traddr=%s\n", 0, false},
		"empty":           {"", 0, false},
		"something else":  {"ok\n", 0, false},
		"overflowing":     {"instance=99999999999999999999,cntlid=1", 0, false},
		"without cntlid":  {"instance=3", 0, false},
		"cntlid not read": {"instance=3,cntlid=x", 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseReply(tc.in)
			if got != tc.want || (err == nil) != tc.ok {
				t.Errorf("parseReply(%q) = %d, %v, want %d, ok %v", tc.in, got, err, tc.want, tc.ok)
			}
		})
	}
}

func FuzzParseReply(f *testing.F) {
	f.Add("instance=3,cntlid=1\n")
	f.Add("instance=-1,cntlid=-1,transport=%s")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseReply(s); n < 0 || err != nil && n != 0 {
			t.Errorf("parseReply(%q) = %d, %v", s, n, err)
		}
	})
}

func TestHost_fabrics_missing(t *testing.T) {
	h := New(host.Root(t.TempDir()), testConfig)
	err := h.fabrics("transport=tcp")
	if !errors.Is(err, transport.ErrPrecondition) || !strings.Contains(err.Error(), "nvme_fabrics") || !strings.Contains(err.Error(), "nvme_tcp") {
		t.Errorf("connect without /dev/nvme-fabrics = %v, want ErrPrecondition with both modules", err)
	}
	if err := h.Available(); !errors.Is(err, transport.ErrUnsupported) {
		t.Errorf("Available = %v, want ErrUnsupported", err)
	}
}

func TestExplain(t *testing.T) {
	if err := explain(unix.EIO); !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), "does not admit this host") {
		t.Errorf("explain(EIO) = %v", err)
	}
	if err := explain(unix.ENOMEM); err != unix.ENOMEM {
		t.Errorf("explain(ENOMEM) = %v", err)
	}
}
