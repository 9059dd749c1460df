package lease

import (
	_ "embed"
	"maps"

	"github.com/redis/go-redis/v9"
)

//go:embed script/prelude.lua
var preludeLua string

//go:embed script/acquire.lua
var acquireLua string

//go:embed script/renew.lua
var renewLua string

//go:embed script/release.lua
var releaseLua string

//go:embed script/abandon.lua
var abandonLua string

//go:embed script/revoke.lua
var revokeLua string

//go:embed script/leave.lua
var leaveLua string

//go:embed script/selftest.lua
var selftestLua string

//go:embed script/gate_enter.lua
var gateEnterLua string

//go:embed script/gate_report.lua
var gateReportLua string

//go:embed script/charge.lua
var chargeLua string

// op names a script: in metrics, errors and the source table.
type op string

const (
	opAcquire    op = "acquire"
	opRenew      op = "renew"
	opRelease    op = "release"
	opAbandon    op = "abandon"
	opRevoke     op = "revoke"
	opLeave      op = "leave"
	opSelftest   op = "selftest"
	opGateEnter  op = "gate_enter"
	opGateReport op = "gate_report"
	opCharge     op = "charge"
	opList       op = "list"
	opPing       op = "ping"
	opClaim      op = "claim"
)

// sources are the script bodies; the prelude stands before each.
func sources() map[op]string {
	return map[op]string{
		opAcquire: acquireLua, opRenew: renewLua, opRelease: releaseLua, opAbandon: abandonLua,
		opRevoke: revokeLua, opLeave: leaveLua, opSelftest: selftestLua,
		opGateEnter: gateEnterLua, opGateReport: gateReportLua, opCharge: chargeLua,
	}
}

// compile makes the scripts of one Manager. Tests put mutants in through edit.
func compile(edit func(name, source string) string) map[op]*redis.Script {
	scripts := map[op]*redis.Script{}
	for name, body := range maps.All(sources()) {
		source := preludeLua + body
		if edit != nil {
			source = edit(string(name), source)
		}
		scripts[name] = redis.NewScript(source)
	}
	return scripts
}
