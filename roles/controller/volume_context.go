package controller

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// volumeContext is what a node needs to attach and mount the volume (api.md 6, block.md
// B-86): the export as recorded and the settings as resolved. Unset settings are left out.
func volumeContext(v *v1alpha1.PillarVolumeState) map[string]string {
	c := contextKeys{}
	if e := v.Status.ExportInfo; e != nil {
		c["target_id"] = e.TargetID
		c["address"] = e.Address
		c["port"] = strconv.Itoa(int(e.Port))
		c.set("volume-ref", e.VolumeRef)
	}
	c.set("protocol-type", v.Spec.ProtocolType)
	r := v.Spec.Resolved
	if r == nil {
		return c
	}
	c.protocol(r.Protocol)
	if l := v.Spec.LVMSource; l != nil && l.PreserveOriginal {
		c.set("import-policy", "PreserveOriginal")
	}
	c.filesystem(r.Filesystem)
	return c
}

// contextKeys collects keys under the driver's prefix.
type contextKeys map[string]string

func (c contextKeys) set(key, value string) { c[v1alpha1.KeyPrefix+key] = value }

func (c contextKeys) protocol(p v1alpha1.Protocol) {
	if n := p.NVMeOFTCP; n != nil {
		c.number("nvmeof-max-queue-size", n.MaxQueueSize)
		c.number("nvmeof-ctrl-loss-tmo", n.CtrlLossTmo)
		c.number("nvmeof-reconnect-delay", n.ReconnectDelay)
		c.set("nvmeof-max-data-transfer-size", fmt.Sprint(settings.MaxDataTransferSize(n)))
	}
	if i := p.ISCSI; i != nil {
		c.number("iscsi-login-timeout", i.LoginTimeout)
		c.number("iscsi-replacement-timeout", i.ReplacementTimeout)
		c.number("iscsi-noop-out-interval", i.NoopOutInterval)
		c.number("iscsi-noop-out-timeout", i.NoopOutTimeout)
		if i.Auth != nil && i.Auth.Method != "" && i.Auth.Method != v1alpha1.AuthNone {
			c.set("iscsi-auth-method", i.Auth.Method)
		}
	}
	if n := p.NFS; n != nil {
		c.set("nfs-version", n.Version)
	}
}

func (c contextKeys) number(key string, value *int32) {
	if value != nil {
		c.set(key, strconv.Itoa(int(*value)))
	}
}

func (c contextKeys) list(key string, value *[]string) {
	if value == nil {
		return
	}
	raw, _ := json.Marshal(append([]string{}, *value...)) // strings always marshal
	c.set(key, string(raw))
}

func (c contextKeys) filesystem(fs *v1alpha1.Filesystem) {
	if fs == nil {
		return
	}
	c.set("fs-type", fs.FSType)
	c.list("mkfs-options", fs.MkfsOptions)
	c.list("mount-options", fs.MountOptions)
	if fs.PeriodicTrim != nil {
		c.set("periodic-trim", strconv.FormatBool(*fs.PeriodicTrim))
	}
}
