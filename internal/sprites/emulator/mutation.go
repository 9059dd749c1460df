package emulator

// Mutation is one deliberate break of the protocol. The acceptance checks are
// proven by them: each must turn at least one check red.
type Mutation string

// The mutations.
const (
	MutateNothing         Mutation = ""
	MutateExitFourBytes   Mutation = "exit-four-bytes"
	MutateSessionInfoLate Mutation = "session-info-late"
	MutateTextExitFirst   Mutation = "text-exit-first"
	MutateBufferedNDJSON  Mutation = "buffered-ndjson"
	MutateMergedHTTP      Mutation = "merged-http-frames"
	MutateNoExit          Mutation = "no-exit"
	MutateListShape       Mutation = "list-shape"
	MutateCreateStatus    Mutation = "create-conflict-status"
	MutatePolicyStatus    Mutation = "policy-status"
	MutateInvalidTime     Mutation = "invalid-time"
	MutateNumericSession  Mutation = "numeric-session"
	MutateStderrAsStdout  Mutation = "stderr-as-stdout"
)

// Mutations lists them all.
func Mutations() []Mutation {
	return []Mutation{
		MutateExitFourBytes, MutateSessionInfoLate, MutateTextExitFirst, MutateBufferedNDJSON, MutateMergedHTTP,
		MutateNoExit, MutateListShape, MutateCreateStatus, MutatePolicyStatus, MutateInvalidTime,
		MutateNumericSession, MutateStderrAsStdout,
	}
}
