package webhook

import (
	"fmt"
	"testing"
)

// Specs the rules start from.
const (
	onNode      = `{nodeRef: {name: w1}}`
	outside     = `{external: {address: 10.0.0.5, port: 9500}}`
	zvols       = `{agentRef: a, backend: {zfs: {pool: tank, parentDataset: k8s}}}`
	lvs         = `{agentRef: a, backend: {lvm: {volumeGroup: vg0, thinPool: tp}}}`
	directories = `{agentRef: a, backend: {directory: {logicalPool: shares, hostRoot: /srv}}}`
	nvme        = `{protocol: {nvmeofTcp: {}}}`
	class       = `{storeRef: s, protocolRef: p}`
	named       = `{storeRef: s, protocolRef: p, storageClass: {name: fast}}`
	reserved    = `{agentRef: a, backendType: lvm-lv, agentVolumeID: vg0/lv, ownerVolume: pvc-1, claimRef: {uid: u}}`

	uuidVG = "aaaaaa-bbbb-cccc-dddd-eeee-ffff-gggggg"
	uuidLV = "111111-2222-3333-4444-5555-6666-777777"
)

// volume is the spec of a PillarVolumeState with more fields.
func volume(more string) string {
	return `{volumeID: a/nvmeof-tcp/lvm-lv/vg0/v, agentVolumeID: vg0/v, agentRef: a, backendType: lvm-lv, protocolType: nvmeof-tcp, capacityBytes: 1` + more + `}`
}

func source(lv string) string {
	return fmt.Sprintf(`{volumeGroup: vg0, logicalVolume: %s, volumeGroupUUID: %s, logicalVolumeUUID: %s, preserveOriginal: true}`, lv, uuidVG, uuidLV)
}

func recovery(more string) string {
	return volume(`, recovery: {oldVolumeUID: old, oldGeneration: 3, newGeneration: 1, source: ` + source("lv") + more + `}`)
}

func adopted(more string) string {
	return volume(`, filesystemAdoption: {canonicalSource: /srv/x, resourceID: r, ` + more + `}`)
}

func TestSchema_PillarAgent(t *testing.T) {
	checkRules(t, "PillarAgent", map[string]rule{
		"on a node":             {spec: onNode},
		"outside":               {spec: outside},
		"neither":               {spec: `{}`, want: map[string]string{"spec": "Invalid: exactly one of nodeRef and external must be set"}},
		"both":                  {spec: `{nodeRef: {name: w1}, external: {address: a, port: 1}}`, want: map[string]string{"spec": "Invalid: exactly one of nodeRef and external must be set"}},
		"no node name":          {spec: `{nodeRef: {}}`, want: map[string]string{"spec.nodeRef.name": "Required"}},
		"empty node name":       {spec: `{nodeRef: {name: ""}}`, want: map[string]string{"spec.nodeRef.name": "Invalid: at least 1"}},
		"unknown address type":  {spec: `{nodeRef: {name: w1, addressType: Hostname}}`, want: map[string]string{"spec.nodeRef.addressType": `NotSupported: "InternalIP", "ExternalIP"`}},
		"several at once":       {spec: `{nodeRef: {name: w1, addressType: Hostname, port: 65536}}`, want: map[string]string{"spec.nodeRef.addressType": "NotSupported", "spec.nodeRef.port": "Invalid: less than or equal to 65535"}},
		"node that is a path":   {spec: `{nodeRef: {name: ../namespaces/default}}`, want: map[string]string{"spec.nodeRef.name": "Invalid: should match"}},
		"name or IP address":    {spec: `{external: {address: "fd00::5", port: 1}}`},
		"IPv4 inside IPv6":      {spec: `{external: {address: "::ffff:10.0.0.5", port: 1}}`},
		"name":                  {spec: `{external: {address: NAS-1.example.com, port: 1}}`},
		"address in brackets":   {spec: `{external: {address: "[::1]", port: 1}}`, want: map[string]string{"spec.external.address": "Invalid: must be an IP address or a host name, without brackets and port; the port is external.port"}},
		"address with a port":   {spec: `{external: {address: "1.2.3.4:9500", port: 1}}`, want: map[string]string{"spec.external.address": "Invalid: without brackets and port"}},
		"address that is a URL": {spec: `{external: {address: "http://foo bar/", port: 1}}`, want: map[string]string{"spec.external.address": "Invalid: without brackets and port"}},
		"port 0":                {spec: `{nodeRef: {name: w1, port: 0}}`, want: map[string]string{"spec.nodeRef.port": "Invalid: greater than or equal to 1"}},
		"external without port": {spec: `{external: {address: a}}`, want: map[string]string{"spec.external.port": "Required"}},
		"to external":           {spec: onNode, change: `{nodeRef: null, external: {address: a, port: 1}}`, want: map[string]string{"spec": "Forbidden: cannot switch between nodeRef and external: was nodeRef w1, asked for external a"}},
		"to a node":             {spec: outside, change: onNode[:1] + `external: null, nodeRef: {name: w1}}`, want: map[string]string{"spec": "Forbidden: cannot switch between nodeRef and external: was external 10.0.0.5, asked for nodeRef w1"}},
		"another node":          {spec: onNode, change: `{nodeRef: {name: w2}}`, want: map[string]string{"spec.nodeRef.name": "Forbidden: nodeRef.name is immutable: was w1, asked for w2"}},
		"another address":       {spec: outside, change: `{external: {address: b}}`, want: map[string]string{"spec.external.address": "Forbidden: external.address is immutable: was 10.0.0.5, asked for b"}},
		"what may change":       {spec: onNode, change: `{nodeRef: {addressType: ExternalIP, addressSelector: 10.0.0.0/8, port: 9600}}`},
	})
}

func TestSchema_PillarStore(t *testing.T) {
	member := "Invalid: exactly one backend member must be set: zfs, lvm, directory"
	checkRules(t, "PillarStore", map[string]rule{
		"zvols":                {spec: zvols},
		"logical volumes":      {spec: lvs},
		"directories":          {spec: directories},
		"no agent":             {spec: `{backend: {zfs: {pool: p}}}`, want: map[string]string{"spec.agentRef": "Required"}},
		"empty agent and pool": {spec: `{agentRef: "", backend: {zfs: {pool: ""}}}`, want: map[string]string{"spec.agentRef": "Invalid: at least 1", "spec.backend.zfs.pool": "Invalid: at least 1"}},
		"no member":            {spec: `{agentRef: a, backend: {}}`, want: map[string]string{"spec.backend": member}},
		"two members":          {spec: `{agentRef: a, backend: {zfs: {pool: p}, lvm: {volumeGroup: g}}}`, want: map[string]string{"spec.backend": member}},
		"volume type":          {spec: `{agentRef: a, backend: {zfs: {pool: p, volumeType: file}}}`, want: map[string]string{"spec.backend.zfs.volumeType": `NotSupported: "zvol", "dataset"`}},
		"provisioning mode":    {spec: `{agentRef: a, backend: {lvm: {volumeGroup: g, provisioningMode: raid}}}`, want: map[string]string{"spec.backend.lvm.provisioningMode": `NotSupported: "linear", "thin"`}},
		"empty group":          {spec: `{agentRef: a, backend: {lvm: {volumeGroup: ""}}}`, want: map[string]string{"spec.backend.lvm.volumeGroup": "Invalid: at least 1"}},
		"names that are paths or flags": {spec: `{agentRef: a/b, backend: {lvm: {volumeGroup: ../etc, thinPool: --help}}}`, want: map[string]string{
			"spec.agentRef": "Invalid: should match", "spec.backend.lvm.volumeGroup": "Invalid: should match", "spec.backend.lvm.thinPool": "Invalid: should match"}},
		"no pool and no dataset": {spec: `{agentRef: a, backend: {zfs: {pool: a/b, parentDataset: /x//..}}}`, want: map[string]string{
			"spec.backend.zfs.pool": "Invalid: should match", "spec.backend.zfs.parentDataset": "Invalid: should match"}},
		"all that names may hold": {spec: `{agentRef: a.b-c, backend: {lvm: {volumeGroup: "+VG_0.a-b", thinPool: "tp+0"}}}`},
		"nested datasets":         {spec: `{agentRef: a, backend: {zfs: {pool: "Tank_0:a.b-c", parentDataset: k8s/vols.1}}}`},
		"nothing by empty text":   {spec: `{agentRef: a, backend: {lvm: {volumeGroup: g, thinPool: ""}}}`},
		"logical pool, root": {spec: `{agentRef: a, backend: {directory: {logicalPool: -x, hostRoot: srv}}}`, want: map[string]string{
			"spec.backend.directory.logicalPool": "Invalid: should match", "spec.backend.directory.hostRoot": "Invalid: should match"}},
		"another member": {spec: zvols, change: `{backend: {zfs: null, lvm: {volumeGroup: g}}}`, want: map[string]string{"spec.backend": "Forbidden: the backend member is immutable: was zfs, asked for lvm"}},
		"all that may not change": {spec: zvols, change: `{agentRef: b, backend: {zfs: {pool: pool2, volumeType: dataset}}}`, want: map[string]string{
			"spec.agentRef": "Forbidden: was a, asked for b", "spec.backend.zfs.pool": "Forbidden: was tank, asked for pool2",
			"spec.backend.zfs.volumeType": "Forbidden: was zvol, asked for dataset"}},
		"another group":        {spec: lvs, change: `{backend: {lvm: {volumeGroup: vg1}}}`, want: map[string]string{"spec.backend.lvm.volumeGroup": "Forbidden: was vg0, asked for vg1"}},
		"another logical pool": {spec: directories, change: `{backend: {directory: {logicalPool: other}}}`, want: map[string]string{"spec.backend.directory.logicalPool": "Forbidden: was shares, asked for other"}},
		"what may change, zfs": {spec: zvols, change: `{backend: {zfs: {parentDataset: other, properties: {compression: lz4}}}}`},
		"what may change, lvm": {spec: lvs, change: `{backend: {lvm: {thinPool: null, provisioningMode: thin}}}`},
		"what may change, dir": {spec: directories, change: `{backend: {directory: {hostRoot: /mnt}}}`},
	})
}

func TestSchema_PillarProtocol(t *testing.T) {
	member := "Invalid: exactly one protocol member must be set: nvmeofTcp, iscsi, nfs"
	checkRules(t, "PillarProtocol", map[string]rule{
		"no member":      {spec: `{protocol: {}}`, want: map[string]string{"spec.protocol": member}},
		"two members":    {spec: `{protocol: {nvmeofTcp: {}, nfs: {}}}`, want: map[string]string{"spec.protocol": member}},
		"another member": {spec: nvme, change: `{protocol: {nvmeofTcp: null, iscsi: {}}}`, want: map[string]string{"spec.protocol": "Forbidden: the protocol member is immutable: was nvmeofTcp, asked for iscsi"}},
		"all lowest":     {spec: `{protocol: {nvmeofTcp: {port: 1, maxQueueSize: 16, inCapsuleDataSize: 1024, maxDataTransferSize: 0, ctrlLossTmo: 0, reconnectDelay: 0}}}`},
		"all highest":    {spec: `{protocol: {nvmeofTcp: {port: 65535, maxQueueSize: 1024, maxDataTransferSize: 1073741824}}}`},
		"all too low": {spec: `{protocol: {nvmeofTcp: {port: 0, maxQueueSize: 15, inCapsuleDataSize: 1023, maxDataTransferSize: 4096, ctrlLossTmo: -1, reconnectDelay: -1}}}`, want: map[string]string{
			"spec.protocol.nvmeofTcp.port": "Invalid: greater than or equal to 1", "spec.protocol.nvmeofTcp.maxQueueSize": "Invalid: greater than or equal to 16",
			"spec.protocol.nvmeofTcp.inCapsuleDataSize": "Invalid: greater than or equal to 1024", "spec.protocol.nvmeofTcp.maxDataTransferSize": "NotSupported: 4096",
			"spec.protocol.nvmeofTcp.ctrlLossTmo": "Invalid: greater than or equal to 0", "spec.protocol.nvmeofTcp.reconnectDelay": "Invalid: greater than or equal to 0"}},
		"too high": {spec: `{protocol: {nvmeofTcp: {port: 65536, maxQueueSize: 1025, maxDataTransferSize: 2147483647}}}`, want: map[string]string{
			"spec.protocol.nvmeofTcp.port": "Invalid: less than or equal to 65535", "spec.protocol.nvmeofTcp.maxQueueSize": "Invalid: less than or equal to 1024",
			"spec.protocol.nvmeofTcp.maxDataTransferSize": "NotSupported: 2147483647"}},
		"a transfer size between": {spec: `{protocol: {nvmeofTcp: {maxDataTransferSize: 12288}}}`, want: map[string]string{"spec.protocol.nvmeofTcp.maxDataTransferSize": "NotSupported: 12288"}},
		"iscsi too low": {spec: `{protocol: {iscsi: {port: 0, loginTimeout: 0, replacementTimeout: -1, noopOutInterval: -1, noopOutTimeout: -1}}}`, want: map[string]string{
			"spec.protocol.iscsi.port": "Invalid: greater than or equal to 1", "spec.protocol.iscsi.loginTimeout": "Invalid: greater than or equal to 1",
			"spec.protocol.iscsi.replacementTimeout": "Invalid: greater than or equal to 0", "spec.protocol.iscsi.noopOutInterval": "Invalid: greater than or equal to 0",
			"spec.protocol.iscsi.noopOutTimeout": "Invalid: greater than or equal to 0"}},
		"iscsi lowest":            {spec: `{protocol: {iscsi: {loginTimeout: 1, replacementTimeout: 0, noopOutInterval: 0, noopOutTimeout: 0}}}`},
		"CHAP":                    {spec: `{protocol: {iscsi: {acl: true, auth: {method: CHAP, secretRef: {name: s}}}}}`},
		"CHAP without its Secret": {spec: `{protocol: {iscsi: {acl: true, auth: {method: CHAP}}}}`, want: map[string]string{"spec.protocol.iscsi": "Invalid: auth.secretRef is required"}},
		"CHAP without ACL":        {spec: `{protocol: {iscsi: {auth: {method: MutualCHAP, secretRef: {name: s}}}}}`, want: map[string]string{"spec.protocol.iscsi": "Invalid: require acl: true"}},
		"unknown method":          {spec: `{protocol: {iscsi: {auth: {method: SRP}}}}`, want: map[string]string{"spec.protocol.iscsi.auth.method": `NotSupported: "None", "CHAP", "MutualCHAP"`}},
		"Secret without a name":   {spec: `{protocol: {iscsi: {acl: true, auth: {method: CHAP, secretRef: {name: ""}}}}}`, want: map[string]string{"spec.protocol.iscsi.auth.secretRef.name": "Invalid: at least 1"}},
		"Secret that is a path":   {spec: `{protocol: {iscsi: {acl: true, auth: {method: CHAP, secretRef: {name: ../kube-system/x}}}}}`, want: map[string]string{"spec.protocol.iscsi.auth.secretRef.name": "Invalid: should match"}},
		"ACL away under CHAP":     {spec: `{protocol: {iscsi: {acl: true, auth: {method: CHAP, secretRef: {name: s}}}}}`, change: `{protocol: {iscsi: {acl: false}}}`, want: map[string]string{"spec.protocol.iscsi": "Invalid: require acl: true"}},
		"nfs of another kind": {spec: `{protocol: {nfs: {version: "4.1", port: 2050, squash: some}}}`, want: map[string]string{
			"spec.protocol.nfs.version": `NotSupported: "4.2"`, "spec.protocol.nfs.port": "NotSupported: 2049", "spec.protocol.nfs.squash": `NotSupported: "root", "none", "all"`}},
		"what may change": {spec: nvme, change: `{protocol: {nvmeofTcp: {port: 4421, acl: true, hdrDigest: true, dataDigest: true, maxQueueSize: 64}}}`},
	})
}

func TestSchema_PillarStorageClass(t *testing.T) {
	checkRules(t, "PillarStorageClass", map[string]rule{
		"minimal":        {spec: class},
		"empty refs":     {spec: `{storeRef: "", protocolRef: "", storageClass: {name: ""}}`, want: map[string]string{"spec.storeRef": "Invalid: at least 1", "spec.protocolRef": "Invalid: at least 1", "spec.storageClass.name": "Invalid: at least 1"}},
		"paths for refs": {spec: `{storeRef: a/b, protocolRef: x%y, storageClass: {name: Foo_Bar}}`, want: map[string]string{"spec.storeRef": "Invalid: should match", "spec.protocolRef": "Invalid: should match", "spec.storageClass.name": "Invalid: should match"}},
		"missing refs":   {spec: `{}`, want: map[string]string{"spec.storeRef": "Required", "spec.protocolRef": "Required"}},
		"enums": {spec: `{storeRef: s, protocolRef: p, csiDriver: other, filesystem: {fsType: zfs}, storageClass: {reclaimPolicy: Keep, volumeBindingMode: Later}}`, want: map[string]string{
			"spec.csiDriver": `NotSupported: "pillar-csi.bhyoo.com", "files.pillar-csi.bhyoo.com"`, "spec.filesystem.fsType": `NotSupported: "ext4", "xfs", "nfs"`,
			"spec.storageClass.reclaimPolicy": `NotSupported: "Delete", "Retain"`, "spec.storageClass.volumeBindingMode": `NotSupported: "Immediate", "WaitForFirstConsumer"`}},
		"all that may not change": {spec: named, change: `{storeRef: s2, protocolRef: p2, csiDriver: files.pillar-csi.bhyoo.com, storageClass: {name: slow}}`, want: map[string]string{
			"spec.storeRef": "Forbidden: was s, asked for s2", "spec.protocolRef": "Forbidden: was p, asked for p2",
			"spec.csiDriver": "Forbidden: was pillar-csi.bhyoo.com, asked for files.pillar-csi.bhyoo.com", "spec.storageClass.name": "Forbidden: was fast, asked for slow"}},
		"name added":       {spec: class, change: `{storageClass: {name: fast}}`, want: map[string]string{"spec.storageClass.name": "Forbidden: was absent, asked for fast"}},
		"name removed":     {spec: named, change: `{storageClass: {name: null}}`, want: map[string]string{"spec.storageClass.name": "Forbidden: was fast, asked for absent"}},
		"template removed": {spec: named, change: `{storageClass: null}`, want: map[string]string{"spec.storageClass.name": "Forbidden: was fast, asked for absent"}},
		"override members": {spec: `{storeRef: s, protocolRef: p, overrides: {backend: {}, protocol: {iscsi: {}, nfs: {}}}}`, want: map[string]string{
			"spec.overrides.backend": "Invalid: exactly one backend member must be set: zfs, lvm, directory", "spec.overrides.protocol": "Invalid: exactly one protocol member must be set: nvmeofTcp, iscsi, nfs"}},
		"override ranges": {spec: `{storeRef: s, protocolRef: p, overrides: {backend: {lvm: {provisioningMode: x}}, protocol: {nvmeofTcp: {maxQueueSize: 1}}}}`, want: map[string]string{
			"spec.overrides.backend.lvm.provisioningMode": "NotSupported", "spec.overrides.protocol.nvmeofTcp.maxQueueSize": "Invalid"}},
		"what may change": {spec: class, change: `{localAttach: true, filesystem: {fsType: xfs, mkfsOptions: [], mountOptions: [noatime], periodicTrim: false},
			overrides: {backend: {zfs: {properties: {compression: lz4}}}, protocol: {iscsi: {loginTimeout: 5}}},
			storageClass: {reclaimPolicy: Retain, volumeBindingMode: WaitForFirstConsumer, allowVolumeExpansion: false}}`},
	})
}

func TestSchema_PillarVolumeState(t *testing.T) {
	digest := `"` + fmt.Sprintf("%064d", 1) + `"`
	checkRules(t, "PillarVolumeState", map[string]rule{
		"plain":        {spec: volume("")},
		"empty":        {spec: `{volumeID: "", agentVolumeID: "", agentRef: "", backendType: "", protocolType: "", capacityBytes: -1}`, want: map[string]string{"spec.volumeID": "Invalid", "spec.agentVolumeID": "Invalid", "spec.agentRef": "Invalid", "spec.backendType": "Invalid", "spec.protocolType": "Invalid", "spec.capacityBytes": "Invalid"}},
		"claim UID":    {spec: volume(`, claimRef: {uid: ""}`), want: map[string]string{"spec.claimRef.uid": "Invalid"}},
		"two sources":  {spec: volume(`, importedFrom: tank/x, lvmSource: ` + source("lv")), want: map[string]string{"spec": "Invalid: exclude each other"}},
		"no source":    {spec: volume(`, importedFrom: "", lvmSource: ` + source("lv"))},
		"recovery too": {spec: recovery(`}, importedFrom: tank/x, claimRef: {uid: u`), want: map[string]string{"spec": "Invalid: recovery excludes"}},
		"UUIDs": {spec: volume(`, lvmSource: {volumeGroup: g, logicalVolume: l, volumeGroupUUID: x, logicalVolumeUUID: ` + uuidLV[1:] + `-, preserveOriginal: false}`), want: map[string]string{
			"spec.lvmSource.volumeGroupUUID": "Invalid: should match", "spec.lvmSource.logicalVolumeUUID": "Invalid: should match"}},
		"policy left out": {spec: volume(fmt.Sprintf(`, lvmSource: {volumeGroup: g, logicalVolume: l, volumeGroupUUID: %s, logicalVolumeUUID: %s}`, uuidVG, uuidLV)), want: map[string]string{
			"spec.lvmSource.preserveOriginal": "Required"}},
		"source changes":      {spec: volume(`, lvmSource: ` + source("lv")), change: `{lvmSource: {logicalVolume: lv2}}`, want: map[string]string{"spec.lvmSource": "Forbidden: was vg0/lv:" + uuidVG + ":" + uuidLV}},
		"source added":        {spec: volume(""), change: `{lvmSource: ` + source("lv") + `}`, want: map[string]string{"spec.lvmSource": "Forbidden: cannot be added or removed: was absent, asked for " + uuidLV}},
		"source removed":      {spec: volume(`, lvmSource: ` + source("lv")), change: `{lvmSource: null}`, want: map[string]string{"spec.lvmSource": "Forbidden: cannot be added or removed: was " + uuidLV}},
		"recovery added":      {spec: volume(""), change: recovery(""), want: map[string]string{"spec.recovery": "Forbidden: was absent, asked for old"}},
		"recovery removed":    {spec: recovery(""), change: `{recovery: null}`, want: map[string]string{"spec.recovery": "Forbidden: was old, asked for absent"}},
		"recovery written":    {spec: recovery(""), change: `{recovery: {newVolumeUID: u, authorizationDigest: ` + digest + `, authorization: aGk=}}`},
		"authorization again": {spec: recovery(`, newVolumeUID: u, authorization: aGk=`), change: `{recovery: {authorization: aG8=}}`},
		"digest":              {spec: recovery(`, authorizationDigest: ABC`), want: map[string]string{"spec.recovery.authorizationDigest": "Invalid: should match"}},
		"written twice": {spec: recovery(`, newVolumeUID: u, authorizationDigest: ` + digest), change: `{recovery: {newVolumeUID: v, authorizationDigest: null}}`, want: map[string]string{
			"spec.recovery.newVolumeUID": "Forbidden: was u, asked for v", "spec.recovery.authorizationDigest": "Forbidden: asked for absent"}},
		"recovery changes": {spec: recovery(""), change: `{recovery: {oldVolumeUID: x, oldGeneration: 4, newGeneration: 2, source: {logicalVolume: lv2}}}`, want: map[string]string{
			"spec.recovery.oldVolumeUID": "Forbidden: was old, asked for x", "spec.recovery.oldGeneration": "Forbidden: recovery.oldGeneration is immutable",
			"spec.recovery.newGeneration": "Forbidden: recovery.newGeneration is immutable", "spec.recovery.source": "Forbidden: asked for vg0/lv2"}},
		"generations": {spec: volume(`, recovery: {oldVolumeUID: x, oldGeneration: -1, newGeneration: -1, source: ` + source("lv") + `}`), want: map[string]string{
			"spec.recovery.oldGeneration": "Invalid", "spec.recovery.newGeneration": "Invalid"}},
	})
}

func TestSchema_FilesystemAdoption(t *testing.T) {
	directory := `kind: directory, filesystemType: ext4, filesystemID: f, projectID: 1, inode: `
	checkRules(t, "PillarVolumeState", map[string]rule{
		"directory":           {spec: adopted(directory + `"18446744073709551615"`)},
		"dataset":             {spec: adopted(`kind: zfs-dataset, filesystemType: zfs, hostPath: /tank/x`)},
		"inode of 65 bits":    {spec: adopted(directory + `"18446744073709551616"`), want: map[string]string{"spec.filesystemAdoption.inode": "Invalid: must fit 64 bits"}},
		"inode 0":             {spec: adopted(directory + `"0"`), want: map[string]string{"spec.filesystemAdoption.inode": "Invalid: should match"}},
		"long inode":          {spec: adopted(directory + `"111111111111111111111"`), want: map[string]string{"spec.filesystemAdoption.inode": "TooLong"}},
		"project 0":           {spec: adopted(`kind: directory, filesystemType: xfs, filesystemID: f, projectID: 0, inode: "2"`), want: map[string]string{"spec.filesystemAdoption.projectID": "Invalid: greater than or equal to 1"}},
		"directory on zfs":    {spec: adopted(`kind: directory, filesystemType: zfs`), want: map[string]string{"spec.filesystemAdoption": "Invalid: directory needs ext4 or xfs"}},
		"directory with path": {spec: adopted(directory + `"2", hostPath: /x`), want: map[string]string{"spec.filesystemAdoption": "Invalid: no hostPath"}},
		"dataset with inode":  {spec: adopted(`kind: zfs-dataset, filesystemType: zfs, inode: "2"`), want: map[string]string{"spec.filesystemAdoption": "Invalid: zfs-dataset needs zfs"}},
		"changes":             {spec: adopted(directory + `"2"`), change: `{filesystemAdoption: {resourceID: s}}`, want: map[string]string{"spec.filesystemAdoption": "Forbidden: was directory /srv/x r, asked for directory /srv/x s"}},
		"added":               {spec: volume(""), change: adopted(directory + `"2"`), want: map[string]string{"spec.filesystemAdoption": "Forbidden: was absent, asked for /srv/x"}},
		"removed":             {spec: adopted(directory + `"2"`), change: `{filesystemAdoption: null}`, want: map[string]string{"spec.filesystemAdoption": "Forbidden: was /srv/x, asked for absent"}},
	})
}

func TestSchema_PillarVolumeReservation(t *testing.T) {
	checkRules(t, "PillarVolumeReservation", map[string]rule{
		"block":   {spec: reserved},
		"files":   {spec: `{agentRef: a, backendType: directory, agentVolumeID: d/x, ownerVolume: v, filesystemResourceID: r}`},
		"empty":   {spec: `{agentRef: "", backendType: "", agentVolumeID: "", ownerVolume: ""}`, want: map[string]string{"spec.agentRef": "Invalid", "spec.backendType": "Invalid", "spec.agentVolumeID": "Invalid", "spec.ownerVolume": "Invalid"}},
		"missing": {spec: `{}`, want: map[string]string{"spec.agentRef": "Required", "spec.backendType": "Required", "spec.agentVolumeID": "Required", "spec.ownerVolume": "Required"}},
		"changes": {spec: reserved, change: `{agentRef: b, backendType: x, agentVolumeID: t, ownerVolume: z, filesystemResourceID: r, claimRef: {uid: v}}`, want: map[string]string{
			"spec.agentRef": "Forbidden: was a, asked for b", "spec.backendType": "Forbidden: was lvm-lv, asked for x", "spec.agentVolumeID": "Forbidden: was vg0/lv, asked for t",
			"spec.ownerVolume": "Forbidden: was pvc-1, asked for z", "spec.filesystemResourceID": "Forbidden: was absent, asked for r", "spec.claimRef": "Forbidden: was u, asked for v"}},
		"claim removed": {spec: reserved, change: `{claimRef: null}`, want: map[string]string{"spec.claimRef": "Forbidden: was u, asked for absent"}},
	})
}
