// Package agentrpc is the connection between a role and the storage node's agent: a
// client that speaks storage.Spec and transport.Export, the fencing token on the wire,
// and one table that turns kinds of failure into gRPC statuses and back.
//
//	caller                    wire                              agent
//	Client.CreateVolume  ->   CreateVolumeRequest + token  ->   Token, Spec
//	errors.Is(err, kind) <-   status + ErrorInfo{reason}   <-   Status(err)
//
// A kind crosses as the reason of an ErrorInfo detail, never by its code or its text:
// one code stands for many kinds, and gRPC itself uses some of the codes.
package agentrpc
