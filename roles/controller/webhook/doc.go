// Package webhook answers the API server about objects users write: what CEL in the CRDs
// cannot say, because it needs another object, a list kept elsewhere or a warning.
//
//	                 CEL (crds/v1alpha1)        here
//	PillarAgent      union, ranges, immutable   addressSelector is a CIDR; external.port; Node exists?
//	PillarStore      union, names, immutable    properties pillar owns; PillarAgent exists?
//	PillarProtocol   union, ranges, CHAP        warnings: Secret exists? reconnectDelay 0
//	PillarStorageClass  enums, immutable        store, protocol, driver, filesystem fit together
//	                                            and the default of allowVolumeExpansion
//
// All violations CEL sees come in one answer, all violations seen here in another: the API
// server asks webhooks only about objects its schema accepts. Without this package the CRDs
// still hold, and reconcilers report the rest as conditions.
//
// TLS: Keeper keeps a CA and a serving certificate in one Secret and the CA in both webhook
// configurations; or files from elsewhere (cert-manager) are served and nothing is written.
//
//	next (pure)  ->  write Secret  ->  patch configurations  ->  read both back  ->  serve
package webhook
