package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
)

// GetCapacity answers the bytes a new volume may use: those the agent has available in the
// store's pool, the figure CreateVolume checks (api.md 9.5). Without parameters it is the
// sum over Ready block stores (block.md U-10).
func (s *Server) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if len(req.GetParameters()) == 0 {
		return s.allCapacity(ctx)
	}
	params, err := settings.ParseParameters(req.GetParameters())
	if err != nil {
		return nil, csiserve.As(csiserve.InvalidArgument, err)
	}
	layers, _, err := s.layers(ctx, &createRequest{Parameters: params})
	if err != nil {
		return nil, err
	}
	if fit(settings.ProtocolKind(layers.Protocol.Protocol), req.GetVolumeCapabilities()...) != nil {
		return &csi.GetCapacityResponse{}, nil // no such volume could be made
	}
	available, err := s.available(ctx, poolOf(layers.Store))
	if err != nil {
		return nil, err
	}
	return &csi.GetCapacityResponse{AvailableCapacity: available}, nil
}

// pool is one pool of one agent; two stores may share it.
type pool struct {
	agent   string
	backend storage.BackendType
	name    string
}

func poolOf(s v1alpha1.PillarStoreSpec) pool {
	return pool{s.AgentRef, settings.BackendType(s.Backend), settings.Pool(s.Backend)}
}

// allCapacity counts a pool once, however many stores are on it.
func (s *Server) allCapacity(ctx context.Context) (*csi.GetCapacityResponse, error) {
	stores := &v1alpha1.PillarStoreList{}
	if err := s.api.List(ctx, stores); err != nil {
		return nil, csiserve.As(csiserve.Internal, fmt.Errorf("list PillarStores: %w", err))
	}
	counted, resp := map[pool]bool{}, &csi.GetCapacityResponse{}
	for _, store := range stores.Items {
		p := poolOf(store.Spec)
		if counted[p] || !provisions(&store) {
			continue
		}
		counted[p] = true
		available, err := s.available(ctx, p)
		if err != nil {
			return nil, err
		}
		resp.AvailableCapacity += available
	}
	return resp, nil
}

// provisions tells whether new block volumes can come from the store now.
func provisions(store *v1alpha1.PillarStore) bool {
	backend := settings.BackendType(store.Spec.Backend)
	return (backend == storage.ZFSZvol || backend == storage.LVMLV) && store.DeletionTimestamp.IsZero() &&
		meta.IsStatusConditionTrue(store.Status.Conditions, v1alpha1.Ready)
}

// available asks the pool's agent, in bytes.
func (s *Server) available(ctx context.Context, p pool) (int64, error) {
	_, client, err := s.dial(ctx, p.agent, csiserve.FailedPrecondition)
	if err != nil {
		return 0, err
	}
	c, err := client.Capacity(ctx, p.backend, p.name)
	if err != nil {
		return 0, fmt.Errorf("agent %s: read capacity of pool %s: %w", p.agent, p.name, err)
	}
	return c.Available, nil
}
