// Package webhook holds the API server to what the CRDs say: its tests.
package webhook
