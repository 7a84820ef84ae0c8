// Package agent is the process on a storage node: a gRPC server that makes volumes and
// lets hosts reach them, when a controller with a current fencing token asks. It decides
// nothing; it verifies and refuses. One file per RPC.
//
//	<state directory>/                 --state-dir, on the node's own disk
//	├── lock                           held by the one agent that runs here (B-282)
//	├── flushed                        left by a drain, removed at start (B-280)
//	├── generations/                   fencing marks, owned by package fencing
//	└── nvmet-identity/                identities found in the kernel, owned by nvmet
//
// A call goes parse -> route -> fence -> act. Up to the fence nothing has an effect; the
// fence makes the mark durable before act begins. Nothing else is remembered: what exists
// is asked of LVM and configfs every time, so kill -9 loses nothing but the caller's answer.
package agent
