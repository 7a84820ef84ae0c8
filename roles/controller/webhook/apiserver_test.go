package webhook

import (
	"os"
	"testing"

	"github.com/pillar-csi/pillar/roles/controller/apiservertest"
)

func TestMain(m *testing.M) { os.Exit(apiservertest.Main(m)) }
