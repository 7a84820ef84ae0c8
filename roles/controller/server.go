package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/agents"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
)

// Server is the CSI Controller service. It keeps nothing in memory that matters: every
// call reads its record from the API server and moves it by compare-and-swap, so two
// controllers may serve at once.
type Server struct {
	csi.UnimplementedControllerServer

	api       client.Client // reads the API server, never a cache
	namespace string        // pillar's own; CHAP Secrets lie there and nowhere else
	ledger    *ledger.Ledger
	agents    *agents.Pool
	gated     func(agent string) // an agent refused because its exports wait for us
	log       *zap.Logger
}

// NewServer answers a server on a client without a cache, for the namespace pillar is
// installed in. gated is told the name of an agent that waits for its complete export
// state.
func NewServer(api client.Client, namespace string, pool *agents.Pool, gated func(agent string), log *zap.Logger) *Server {
	return &Server{api: api, namespace: namespace, ledger: ledger.New(api), agents: pool, gated: gated, log: log}
}

// ControllerGetCapabilities names what works.
func (s *Server) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

// find answers the record of a volume ID. found is false if the driver never issued the
// ID or has no record of it; a record that contradicts the ID is FailedPrecondition. The
// record has the volume's name, unless the volume was adopted and kept its own (block.md
// B-12); only then, or when it is gone, is it looked for by its ID.
func (s *Server) find(ctx context.Context, volume string) (v *v1alpha1.PillarVolumeState, found bool, err error) {
	if volume == "" {
		return nil, false, csiserve.Invalid("volume_id", "is empty")
	}
	id, ok := parseVolumeID(volume)
	if !ok {
		return nil, false, nil
	}
	var named *v1alpha1.PillarVolumeState
	if settings.ObjectName(id.volume.Name) {
		named, err = s.ledger.Read(ctx, id.volume.Name)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return nil, false, err
		}
	}
	if named != nil && id.matches(named) == nil {
		return named, true, nil
	}
	v, err = s.ledger.ByID(ctx, volume)
	if err == nil && v == nil && named != nil {
		return nil, false, id.matches(named)
	}
	return v, v != nil, err
}

// required is find where an unknown volume is NotFound.
func (s *Server) required(ctx context.Context, volume string) (*v1alpha1.PillarVolumeState, error) {
	v, found, err := s.find(ctx, volume)
	if err == nil && !found {
		err = csiserve.As(csiserve.NotFound, fmt.Errorf("volume %s does not exist", volume))
	}
	return v, err
}

// read gets a cluster-scoped object from the API server; absent says with which code its
// absence is answered.
func (s *Server) read(ctx context.Context, name string, obj client.Object, absent csiserve.Code, what string) error {
	return s.readKey(ctx, types.NamespacedName{Name: name}, obj, absent, what)
}

func (s *Server) readKey(ctx context.Context, key types.NamespacedName, obj client.Object, absent csiserve.Code, what string) error {
	if !settings.ObjectName(key.Name) || key.Namespace != "" && !settings.ObjectName(key.Namespace) {
		return csiserve.As(absent, fmt.Errorf("%s not found: no object could have that name", what))
	}
	err := s.api.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		return csiserve.As(absent, fmt.Errorf("%s not found", what))
	}
	if err != nil {
		return csiserve.As(csiserve.Internal, fmt.Errorf("read %s: %w", what, err))
	}
	return nil
}

// answer gives the controller's own kinds their codes; csiserve knows the others.
func (s *Server) answer(agent string, err error) error {
	if agents.Gated(err) {
		s.gated(agent)
	}
	var field *settings.FieldError
	switch {
	case errors.Is(err, ledger.ErrLost):
		return csiserve.As(csiserve.Aborted, err)
	case errors.As(err, &field):
		return csiserve.As(csiserve.InvalidArgument, err)
	}
	return err
}
