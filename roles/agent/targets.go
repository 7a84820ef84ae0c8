package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/pillar-csi/pillar/roles/agent/exports"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/nvmet"
)

// target is a protocol as the agent uses it.
type target interface {
	exports.Target
	// Subsystem names the protocol in the health answer.
	Subsystem() string
	// List answers the pillar exports the kernel has.
	List(ctx context.Context) ([]transport.Target, error)
	// Unexport removes the device's export; a missing one is success.
	Unexport(ctx context.Context, volume, device string) error
	// Deny takes one initiator's admission and sessions away; a missing one is success.
	Deny(ctx context.Context, volume, device, initiator string, hold transport.Hold) error
	// Resize shows hosts the size the device has now; no export is success.
	Resize(ctx context.Context, volume, device string) error
	// Users names the exports, anybody's, that serve the device.
	Users(ctx context.Context, major, minor uint32) ([]string, error)
}

// targets are the protocols this agent serves.
type targets map[transport.Kind]target

func (ts targets) find(kind transport.Kind) (target, error) {
	t, ok := ts[kind]
	switch {
	case kind == "":
		return nil, fmt.Errorf("%w: no protocol", transport.ErrInvalid)
	case !ok:
		return nil, fmt.Errorf("%w: protocol %q", transport.ErrUnsupported, kind)
	}
	return t, nil
}

// list answers the pillar exports of every protocol the kernel has.
func (ts targets) list(ctx context.Context) (all []transport.Target, err error) {
	for _, t := range ts {
		if errors.Is(t.Available(ctx), transport.ErrUnsupported) {
			continue
		}
		list, err := t.List(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

func (ts targets) reachable() map[transport.Kind]exports.Target {
	all := map[transport.Kind]exports.Target{}
	for kind, t := range ts {
		all[kind] = t
	}
	return all
}

// nvmeTCP is nvmet with the names the agent knows it by.
type nvmeTCP struct{ *nvmet.Target }

func (nvmeTCP) ID(volume string) (string, error) { return nvmet.NQN(volume) }
func (nvmeTCP) Subsystem() string                { return subsystemNVMet }
