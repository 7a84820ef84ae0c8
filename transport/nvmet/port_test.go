package nvmet

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/transport"
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

// A directory of our ID with another address is somebody's: the next ID is taken, and
// found again by its address.
func TestTarget_Link_probes(t *testing.T) {
	k, tgt := fixture(t)
	id := portID(portal)
	taken := "nvmet/ports/" + strconv.Itoa(id)
	must(t, k.Mkdir(taken))
	must(t, k.WriteFile(taken+"/addr_traddr", []byte("192.0.2.1")))
	exporting(export(nil))(t, tgt)
	exporting(export(nil))(t, tgt)
	if ok, err := tgt.nvmet.Sub("ports", strconv.Itoa(id+1), "subsystems").List(); len(ok) != 1 || err != nil {
		t.Errorf("port %d serves %v, %v, want the subsystem", id+1, ok, err)
	}
	ports, err := tgt.portList()
	if len(ports) != 2 || err != nil {
		t.Errorf("there are %d ports, %v, want 2", len(ports), err)
	}
}

// On a kernel with param_mdts an idle port takes the request, a live one bounds it.
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
		"nothing asked":        {"1", nil, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k, tgt := fixture(t)
			exporting(export(nil))(t, tgt)
			k.Plant("nvmet/ports/"+strconv.Itoa(portID(portal))+"/param_mdts", tc.live)
			_, err := tgt.Export(t.Context(), export(func(e *transport.Export) { e.MaxDataTransferSize = tc.asked }), free)
			if !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), "param_mdts") {
				t.Errorf("Export = %v, want %v", err, tc.want)
			}
		})
	}
}
