package attach

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

func ptr(n int) *int { return &n }

var volume = map[string]string{
	"target_id": "nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1", "address": "10.0.0.1", "port": "4420",
	Prefix + "protocol-type": "nvmeof-tcp",
}

// with answers the volume context with some values changed; "-" removes a key.
func with(kv ...string) map[string]string {
	c := maps.Clone(volume)
	for i := 0; i < len(kv); i += 2 {
		if c[kv[i]] = kv[i+1]; kv[i+1] == "-" {
			delete(c, kv[i])
		}
	}
	return c
}

func TestParse(t *testing.T) {
	base := func(change func(*NVMe)) NVMe {
		n := NVMe{SubsysNQN: volume["target_id"], Address: "10.0.0.1", Port: 4420, MaxTransfer: 4 << 20}
		change(&n)
		return n
	}
	tests := map[string]struct {
		volume, publish map[string]string
		want            NVMe
	}{
		"nothing set": {volume, nil, base(func(*NVMe) {})},
		"options": {with(Prefix+"nvmeof-max-queue-size", "128", Prefix+"nvmeof-ctrl-loss-tmo", "-1", Prefix+"nvmeof-reconnect-delay", "0"), nil,
			base(func(n *NVMe) { n.QueueSize, n.CtrlLossTmo, n.ReconnectDelay = ptr(128), ptr(-1), ptr(0) })},
		"digests": {volume, map[string]string{Prefix + "nvmeof-hdr-digest": "true", Prefix + "nvmeof-data-digest": "true"},
			base(func(n *NVMe) { n.HdrDigest, n.DataDigest = true, true })},
		"no transfer limit": {with(Prefix+"nvmeof-max-data-transfer-size", "0"), nil, base(func(n *NVMe) { n.MaxTransfer = 0 })},
		"one page":          {with(Prefix+"nvmeof-max-data-transfer-size", "4096"), nil, base(func(n *NVMe) { n.MaxTransfer = 4096 })},
		"IPv6":              {with("address", "fd00::1"), nil, base(func(n *NVMe) { n.Address = "fd00::1" })},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(tc.volume, tc.publish, 4096)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Source{Protocol: transport.NVMeTCP, NVMe: &tc.want}, got); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
			if err := got.Valid(); err != nil {
				t.Errorf("Valid = %v", err)
			}
		})
	}
}

func TestParse_Refused(t *testing.T) {
	tests := map[string]struct {
		volume, publish map[string]string
		want            csiserve.Code
	}{
		"no context":           {nil, nil, csiserve.InvalidArgument},
		"no target":            {with("target_id", "-"), nil, csiserve.InvalidArgument},
		"target with comma":    {with("target_id", volume["target_id"]+",hostnqn=x"), nil, csiserve.InvalidArgument},
		"no address":           {with("address", ""), nil, csiserve.InvalidArgument},
		"address with comma":   {with("address", "10.0.0.1,x"), nil, csiserve.InvalidArgument},
		"no port":              {with("port", "-"), nil, csiserve.InvalidArgument},
		"port 0":               {with("port", "0"), nil, csiserve.InvalidArgument},
		"port too large":       {with("port", "65536"), nil, csiserve.InvalidArgument},
		"port name":            {with("port", "nvme"), nil, csiserve.InvalidArgument},
		"unknown protocol":     {with(Prefix+"protocol-type", "fc"), nil, csiserve.InvalidArgument},
		"option, no number":    {with(Prefix+"nvmeof-ctrl-loss-tmo", "10m"), nil, csiserve.InvalidArgument},
		"option, empty":        {with(Prefix+"nvmeof-max-queue-size", ""), nil, csiserve.InvalidArgument},
		"limit below page":     {with(Prefix+"nvmeof-max-data-transfer-size", "2048"), nil, csiserve.InvalidArgument},
		"limit with odd bytes": {with(Prefix+"nvmeof-max-data-transfer-size", "8193"), nil, csiserve.InvalidArgument},
		"digest, other word":   {volume, map[string]string{Prefix + "nvmeof-hdr-digest": "yes"}, csiserve.InvalidArgument},
		"unknown attach mode":  {volume, map[string]string{Prefix + "attach-mode": "remote"}, csiserve.InvalidArgument},
		"local attach":         {volume, map[string]string{Prefix + "attach-mode": "local"}, csiserve.FailedPrecondition},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(tc.volume, tc.publish, 4096)
			if csiserve.CodeOf(err) != tc.want {
				t.Errorf("Parse = %+v, %v, want code %v", got, err, tc.want)
			}
		})
	}
}

func TestSource_Same(t *testing.T) {
	source := func(change func(*NVMe)) Source {
		n := NVMe{SubsysNQN: "nqn", Address: "10.0.0.1", Port: 4420}
		change(&n)
		return Source{Protocol: transport.NVMeTCP, NVMe: &n}
	}
	tests := map[string]struct {
		other Source
		want  bool
	}{
		"equal":         {source(func(*NVMe) {}), true},
		"other options": {source(func(n *NVMe) { n.HdrDigest, n.QueueSize = true, ptr(1) }), true},
		"other port":    {source(func(n *NVMe) { n.Port = 1 }), false},
		"other address": {source(func(n *NVMe) { n.Address = "10.0.0.2" }), false},
		"other target":  {source(func(n *NVMe) { n.SubsysNQN = "x" }), false},
		"no connection": {Source{Protocol: transport.NVMeTCP}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := source(func(*NVMe) {}).Same(tc.other); got != tc.want {
				t.Errorf("Same(%+v) = %v, want %v", tc.other.NVMe, got, tc.want)
			}
		})
	}
}
