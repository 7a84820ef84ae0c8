package settings

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// checkProtocol holds documents to the ranges the CRD schema states: the schema cannot
// see annotation text.
func checkProtocol(key string, o *v1alpha1.ProtocolOverrides) error {
	type bound struct {
		path     string
		value    *int32
		min, max int32
	}
	var bounds []bound
	if n := o.NVMeOFTCP; n != nil {
		if err := checkTransferSize(key, n.MaxDataTransferSize); err != nil {
			return err
		}
		bounds = append(bounds,
			bound{"nvmeofTcp.maxQueueSize", n.MaxQueueSize, 16, 1024},
			bound{"nvmeofTcp.inCapsuleDataSize", n.InCapsuleDataSize, 1024, math.MaxInt32},
			bound{"nvmeofTcp.ctrlLossTmo", n.CtrlLossTmo, 0, math.MaxInt32},
			bound{"nvmeofTcp.reconnectDelay", n.ReconnectDelay, 0, math.MaxInt32})
	}
	if i := o.ISCSI; i != nil {
		bounds = append(bounds,
			bound{"iscsi.loginTimeout", i.LoginTimeout, 1, math.MaxInt32},
			bound{"iscsi.replacementTimeout", i.ReplacementTimeout, 0, math.MaxInt32},
			bound{"iscsi.noopOutInterval", i.NoopOutInterval, 0, math.MaxInt32},
			bound{"iscsi.noopOutTimeout", i.NoopOutTimeout, 0, math.MaxInt32})
	}
	for _, b := range bounds {
		if b.value != nil && (*b.value < b.min || *b.value > b.max) {
			return &FieldError{
				Key: key, Path: b.path, Value: fmt.Sprint(*b.value), Why: "is out of range",
				Fix: fmt.Sprintf("use %d to %d", b.min, b.max),
			}
		}
	}
	return nil
}

func checkTransferSize(key string, size *v1alpha1.MaxDataTransferSize) error {
	if size == nil || *size == 0 {
		return nil
	}
	const low, high = 8192, 1 << 30
	if s := *size; s < low || s > high || s&(s-1) != 0 {
		return &FieldError{
			Key: key, Path: "nvmeofTcp.maxDataTransferSize", Value: fmt.Sprint(s), Why: "is not a transfer size",
			Fix: fmt.Sprintf("use 0 or a power of two from %d to %d", low, high),
		}
	}
	return nil
}

func oneOf(key, path, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return &FieldError{Key: key, Path: path, Value: value, Why: "is not supported", Fix: "use one of " + strings.Join(allowed, ", ")}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
