package controller

import (
	"errors"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// defaultSize is made when a request names no size (block.md U-6).
const defaultSize = 1 << 30

// createRequest is a CreateVolume request that passed every check which needs no API
// server, but for bad.
type createRequest struct {
	name            string
	required, limit int64 // bytes; 0 is unset
	block           bool  // every capability is raw block

	settings.Parameters
	bad        settings.Problems // of the parameters; plan answers them with those of the claim
	caps       []*csi.VolumeCapability
	mountFlags []string // of every mount capability
}

// parseCreate checks the request (block.md B-65 to B-69); every error is InvalidArgument.
func parseCreate(req *csi.CreateVolumeRequest) (createRequest, error) {
	w := createRequest{
		name:     req.GetName(),
		required: req.GetCapacityRange().GetRequiredBytes(),
		limit:    req.GetCapacityRange().GetLimitBytes(),
		caps:     req.GetVolumeCapabilities(),
		block:    true,
	}
	switch {
	case w.name == "":
		return w, csiserve.Invalid("name", "is empty")
	case strings.Contains(w.name, "/"):
		return w, csiserve.Invalid("name", fmt.Sprintf("%q contains a slash; choose a name without", w.name))
	case !settings.ObjectName(w.name):
		return w, csiserve.Invalid("name", fmt.Sprintf("%q is no name of a Kubernetes object; use lower-case letters, digits, dash and dot", w.name))
	case len(req.GetMutableParameters()) > 0:
		return w, csiserve.Invalid("mutable_parameters", "are not supported; remove the VolumeAttributesClass")
	case req.GetVolumeContentSource() != nil:
		return w, csiserve.Invalid("volume_content_source", "volume_content_source is not supported; create an empty volume")
	}
	if err := checkCapabilities("volume_capabilities", w.caps); err != nil {
		return w, err
	}
	if err := w.checkSize(); err != nil {
		return w, err
	}
	params, err := settings.ParseParameters(req.GetParameters())
	if err != nil && !errors.As(err, &w.bad) {
		return w, err
	}
	w.Parameters = params
	return w, w.capabilities()
}

// capabilities reads what the class says through the capability. Its fs_type is the
// parameter csi.storage.k8s.io/fstype, which the provisioner takes away (api.md 3.3).
func (w *createRequest) capabilities() error {
	for _, c := range w.caps {
		mount := c.GetMount()
		if mount == nil {
			continue
		}
		w.block = false
		w.mountFlags = append(w.mountFlags, mount.GetMountFlags()...)
		switch fsType := mount.GetFsType(); {
		case fsType == "":
		case w.FSType != "" && w.FSType != fsType:
			return csiserve.Invalid("volume_capabilities", fmt.Sprintf("fs_type %q beside %q; ask for one filesystem", fsType, w.FSType))
		default:
			w.FSType = fsType
		}
	}
	return nil
}

func (w *createRequest) checkSize() error {
	switch {
	case w.required < 0:
		return csiserve.Invalid("capacity_range.required_bytes", fmt.Sprintf("%d is negative", w.required))
	case w.limit < 0:
		return csiserve.Invalid("capacity_range.limit_bytes", fmt.Sprintf("%d is negative", w.limit))
	case w.limit > 0 && w.limit < w.required:
		return csiserve.Invalid("capacity_range.limit_bytes", fmt.Sprintf("%d is less than required_bytes %d", w.limit, w.required))
	}
	return nil
}

// size is what the backend is asked for.
func (w *createRequest) size() int64 {
	switch {
	case w.required > 0:
		return w.required
	case w.limit > 0:
		return min(w.limit, defaultSize)
	}
	return defaultSize
}
