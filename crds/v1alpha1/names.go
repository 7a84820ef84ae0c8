package v1alpha1

// The driver's identities (api.md 1).
const (
	DriverName     = "pillar-csi.bhyoo.com"
	FileDriverName = "files.pillar-csi.bhyoo.com"

	// KeyPrefix begins every own annotation, label, parameter, finalizer and context key.
	KeyPrefix = "pillar-csi.bhyoo.com/"
)

// Finalizers (api.md 2.1).
const (
	AgentFinalizer       = KeyPrefix + "pillar-agent-protection"
	StoreFinalizer       = KeyPrefix + "store-protection"
	ProtocolFinalizer    = KeyPrefix + "protocol-protection"
	ClassFinalizer       = KeyPrefix + "storage-class-protection"
	VolumeStateFinalizer = KeyPrefix + "volume-state-protection"
)

// Labels and annotations the driver writes (api.md 8).
const (
	AgentNodeLabel = KeyPrefix + "agent-node" // Node: "true" while a PillarAgent names it

	HostNQNAnnotation      = KeyPrefix + "nvmeof-host-nqn"     // CSINode
	InitiatorIQNAnnotation = KeyPrefix + "iscsi-initiator-iqn" // CSINode

	CarryOverAnnotation       = KeyPrefix + "storage-class-carry-over" // PillarStorageClass
	SuccessRecordedAnnotation = KeyPrefix + "success-recorded"         // PillarVolumeState
	ProtocolRefAnnotation     = KeyPrefix + "protocol-ref"             // PillarVolumeState
	VolumeHashLabel           = KeyPrefix + "volume-hash"              // PillarVolumeState: of spec.volumeID
)

// Keys of documents and StorageClass parameters (api.md 4 and 5).
const (
	BackendKey      = KeyPrefix + "backend"
	ProtocolKey     = KeyPrefix + "protocol"
	FilesystemKey   = KeyPrefix + "filesystem"
	StorageClassKey = KeyPrefix + "storage-class"
	StoreRefKey     = KeyPrefix + "store-ref"
	ProtocolRefKey  = KeyPrefix + "protocol-ref"
	LocalAttachKey  = KeyPrefix + "local-attach"
)
