package csiserve

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// identity is the CSI Identity service.
type identity struct {
	csi.UnimplementedIdentityServer
	cfg Config
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.cfg.Name, VendorVersion: i.cfg.Version}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: i.cfg.Capabilities}, nil
}

// Probe is FailedPrecondition with the reason while the plugin cannot work (CSI spec,
// "Probe"). A response without a ready field counts as ready.
func (i *identity) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	if i.cfg.Probe == nil {
		return &csi.ProbeResponse{}, nil
	}
	if err := i.cfg.Probe(ctx); err != nil {
		return nil, As(FailedPrecondition, err)
	}
	return &csi.ProbeResponse{}, nil
}
