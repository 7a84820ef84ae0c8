package v1alpha1

// Condition types.
const (
	Ready = "Ready"

	NodeExists     = "NodeExists"
	AgentConnected = "AgentConnected"
	ExportsReady   = "ExportsReady"

	AgentReady       = "AgentReady"
	PoolDiscovered   = "PoolDiscovered"
	BackendSupported = "BackendSupported"

	StoreReady          = "StoreReady"
	ProtocolValid       = "ProtocolValid"
	Compatible          = "Compatible"
	StorageClassCreated = "StorageClassCreated"

	BackendCreated   = "BackendCreated"
	ExportCreated    = "ExportCreated"
	ExportReconciled = "ExportReconciled"
)

// Reasons shared by several kinds.
const (
	ReasonAllConditionsMet = "AllConditionsMet"
	ReasonConditionsNotMet = "ConditionsNotMet"
	ReasonDeletionBlocked  = "DeletionBlocked"
)

// Reasons of PillarAgent conditions (api.md 2.2).
const (
	ReasonNodeFound    = "NodeFound"
	ReasonNodeNotFound = "NodeNotFound"
	ReasonExternalMode = "ExternalMode"

	ReasonAuthenticated       = "Authenticated"
	ReasonDialed              = "Dialed"
	ReasonAgentDegraded       = "AgentDegraded"
	ReasonAgentUnhealthy      = "AgentUnhealthy"
	ReasonTLSHandshakeFailed  = "TLSHandshakeFailed"
	ReasonHealthCheckFailed   = "HealthCheckFailed"
	ReasonAddressNotResolved  = "AddressNotResolved"
	ReasonDialerNotConfigured = "DialerNotConfigured"

	ReasonExportsServing       = "ExportsServing"
	ReasonExportRestorePending = "ExportRestorePending"
	ReasonExportRestoreFailed  = "ExportRestoreFailed"
	ReasonAgentNotConnected    = "AgentNotConnected"
)

// Reasons of PillarStore conditions (api.md 2.3).
const (
	ReasonAgentReady            = "AgentReady"
	ReasonTargetNotFound        = "TargetNotFound"
	ReasonTargetNotReady        = "TargetNotReady"
	ReasonPoolDiscovered        = "PoolDiscovered"
	ReasonWaitingForAgentData   = "WaitingForAgentData"
	ReasonPoolNotFound          = "PoolNotFound"
	ReasonBackendLayoutMismatch = "BackendLayoutMismatch"
	ReasonBackendSupported      = "BackendSupported"
	ReasonBackendNotSupported   = "BackendNotSupported"
)

// Reasons of PillarProtocol and PillarStorageClass conditions (api.md 2.4 and 2.5).
const (
	ReasonProtocolConfigured = "ProtocolConfigured"
	ReasonAuthSecretInvalid  = "AuthSecretInvalid"

	ReasonStoreReady        = "StoreReady"
	ReasonPoolNotReady      = "PoolNotReady"
	ReasonProtocolValid     = "ProtocolValid"
	ReasonProtocolNotFound  = "ProtocolNotFound"
	ReasonProtocolNotReady  = "ProtocolNotReady"
	ReasonCompatible        = "Compatible"
	ReasonIncompatible      = "Incompatible"
	ReasonCreated           = "Created"
	ReasonStorageClassError = "StorageClassError"
)

// Reasons of PillarVolumeState conditions (api.md 2.6).
const (
	ReasonReconciled        = "Reconciled"
	ReasonAgentUnavailable  = "AgentUnavailable"
	ReasonReconcileFailed   = "ReconcileFailed"
	ReasonStaleGeneration   = "StaleGeneration"
	ReasonExportSpecMissing = "ExportSpecMissing"
)
