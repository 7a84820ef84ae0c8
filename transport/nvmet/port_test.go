package nvmet

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
)

func TestMDTS(t *testing.T) {
	tests := map[string]struct {
		limit *int32
		want  int
		ok    bool
	}{
		"nothing asked":    {nil, 0, true},
		"no limit":         {new(int32(0)), 0, true},
		"smallest":         {new(int32(8192)), 1, true},
		"4 MiB":            {new(int32(4 << 20)), 10, true},
		"1 GiB":            {new(int32(1 << 30)), 18, true},
		"one page":         {new(int32(4096)), 0, false},
		"no power of two":  {new(int32(12288)), 0, false},
		"less than a page": {new(int32(512)), 0, false},
		"negative":         {new(int32(-8192)), 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := mdts(tc.limit)
			if got != tc.want || (err == nil) != tc.ok {
				t.Errorf("mdts = %d, %v, want %d, ok %v", got, err, tc.want, tc.ok)
			}
		})
	}
}

func TestPortID_inRange(t *testing.T) {
	for n := range 65535 {
		if id := portID(transport.Portal{Address: "10.0.0.1", Port: uint16(n)}); id < 1 || id > 65535 {
			t.Fatalf("portID of TCP port %d = %d", n, id)
		}
	}
}

// portRules are what block.md asks about the ports that volumes share.
var portRules = map[string]func(*rig){
	"B-235 a port that is not named is the protocol's": func(r *rig) {
		r.do(exporting(func(e *transport.Export) { e.Portal.Port = 0 }))
		r.shows(r.ownPort(portal), "addr_trsvcid", "4420")
	},
	"B-250 each address has a port of its own": func(r *rig) {
		other := transport.Portal{Address: "127.0.0.1", Port: 4421}
		r.do(exporting(), exporting(second, func(e *transport.Export) { e.Portal = other }))
		r.serves(r.ownPort(portal), nqn)
		r.serves(r.ownPort(other), nqn2)
	},
	"B-250 an ID that is somebody else's is left, and the next one found again": func(r *rig) {
		taken := r.ownPort(portal)
		r.makePort(taken, map[string]string{"addr_traddr": "127.0.0.9"})
		r.do(exporting(), exporting(second))
		r.serves(taken)
		r.serves(r.nvmet.Sub("ports", strconv.Itoa(portID(portal)+1)), nqn, nqn2)
	},
	"B-250 a port is known by its address, not by its ID": func(r *rig) {
		by := r.nvmet.Sub("ports", "7")
		r.makePort(by, address)
		r.do(exporting())
		r.serves(by, nqn)
	},
	"B-251 an idle port is corrected": func(r *rig) {
		by := r.nvmet.Sub("ports", "7")
		r.makePort(by, address)
		must(r.t, by.Set(r.t.Context(), "addr_adrfam", "ipv6"))
		must(r.t, by.Set(r.t.Context(), "param_inline_data_size", "8192"))
		r.do(exporting())
		r.shows(by, "addr_adrfam", "ipv4")
		r.shows(by, "param_inline_data_size", "16384") // -1 of a live port
	},
	"B-252 an idle port takes the in-capsule size asked for": func(r *rig) {
		r.do(exporting(inCapsule(8192)))
		r.shows(r.ownPort(portal), "param_inline_data_size", "8192")
		r.do(unexporting, exporting())
		r.shows(r.ownPort(portal), "param_inline_data_size", "16384")
	},
	"B-252 a live port accepts what it has, and nothing else": func(r *rig) {
		r.do(exporting(inCapsule(8192)), exporting(second, inCapsule(8192)), exporting(second))
		r.k.Trace()
		err := exports(second, inCapsule(4096))(r.t, r.Target)
		r.refused("Export", err, transport.ErrPrecondition, "param_inline_data_size 8192, asked for 4096", "another TCP port")
		r.wrote()
	},
	"B-252 a revoke keeps the in-capsule size": func(r *rig) {
		r.do(exporting(inCapsule(8192), toBoth), denying(host1))
		r.shows(r.ownPort(portal), "param_inline_data_size", "8192")
	},
	"B-253 without param_mdts an export succeeds, and it is told": func(r *rig) {
		told := 0
		r.cfg.Unbounded = func() { told++ }
		r.do(exporting(), exporting(func(e *transport.Export) { e.MaxDataTransferSize = new(int32(1 << 20)) }))
		names, err := r.ownPort(portal).List()
		must(r.t, err)
		if want := map[bool]int{true: 0, false: 1}[slices.Contains(names, "param_mdts")]; told != want {
			r.t.Errorf("told %d times of a limit that this kernel cannot hold, want %d", told, want)
		}
	},
	"B-492 an address that the machine has not is named": func(r *rig) {
		err := exports(func(e *transport.Export) { e.Portal.Address = "203.0.113.1" })(r.t, r.Target)
		r.refused("Export", err, transport.ErrPrecondition, "203.0.113.1:4420", "address")
		if _, atAll := reachable(r.t, r.k); atAll {
			r.t.Error("the volume is reachable")
		}
		r.do(exporting())
		r.serves(r.ownPort(portal), nqn)
	},
}

// address is the portal's.
var address = map[string]string{"addr_trtype": "tcp", "addr_adrfam": "ipv4", "addr_traddr": portal.Address, "addr_trsvcid": "4420"}

func (r *rig) makePort(d configfs.Dir, attrs map[string]string) {
	r.t.Helper()
	must(r.t, d.Mkdir(r.t.Context()))
	for attr, value := range attrs {
		must(r.t, d.Set(r.t.Context(), attr, value))
	}
}

func (r *rig) ownPort(p transport.Portal) configfs.Dir {
	return r.nvmet.Sub("ports", strconv.Itoa(portID(p)))
}

// serves wants these subsystems behind a port.
func (r *rig) serves(d configfs.Dir, want ...string) {
	r.t.Helper()
	if got, err := d.Sub("subsystems").List(); !slices.Equal(got, want) || err != nil {
		r.t.Errorf("port %s serves %q, %v, want %q", d.Base(), got, err, want)
	}
}

// B-253: on a kernel with param_mdts an idle port takes the request, a live one bounds it.
// No kernel of the lab has it.
func TestTarget_Link_mdts(t *testing.T) {
	tests := map[string]struct {
		live  string
		asked *int32
		want  error
	}{
		"no limit on the port": {"0", new(int32(8192)), nil},
		"smaller on the port":  {"1", new(int32(1 << 20)), nil},
		"equal":                {"8", new(int32(1 << 20)), nil},
		"larger on the port":   {"10", new(int32(8192)), transport.ErrPrecondition},
		"no limit asked":       {"1", new(int32(0)), nil},
		"nothing asked":        {"1", nil, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k, tgt := inMemory(t)
			exporting()(t, tgt)
			k.Plant("nvmet/ports/"+strconv.Itoa(portID(portal))+"/param_mdts", tc.live)
			err := exports(func(e *transport.Export) { e.MaxDataTransferSize = tc.asked })(t, tgt)
			if !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), "param_mdts") {
				t.Errorf("Export = %v, want %v", err, tc.want)
			}
			unexporting(t, tgt)
			exporting(func(e *transport.Export) { e.MaxDataTransferSize = tc.asked })(t, tgt)
			want, err := mdts(tc.asked)
			must(t, err)
			if got, err := tgt.nvmet.Sub("ports", strconv.Itoa(portID(portal))).Read("param_mdts"); got != strconv.Itoa(want) || err != nil {
				t.Errorf("idle port has param_mdts %s, %v, want %d", got, err, want)
			}
		})
	}
}
