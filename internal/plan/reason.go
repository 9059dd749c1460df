package plan

// Reason is a stable code that says why a run was denied or failed. The set is closed.
type Reason string

// The closed set of reasons. Each has its sentence and its retry advice in the table below.
const (
	ReasonKillSwitchOff         Reason = "kill_switch_off"
	ReasonMisconfigured         Reason = "misconfigured"
	ReasonInvalidRequest        Reason = "invalid_request"
	ReasonAppAdminRequired      Reason = "app_admin_required"
	ReasonNoDriveAccess         Reason = "no_drive_access"
	ReasonInsufficientRole      Reason = "insufficient_role"
	ReasonNoAgentAccess         Reason = "no_agent_access"
	ReasonPageNotFound          Reason = "page_not_found"
	ReasonNoEditAccess          Reason = "no_edit_access"
	ReasonDriveNotFound         Reason = "drive_not_found"
	ReasonAuthorizationExpired  Reason = "authorization_expired"
	ReasonEmptyCommand          Reason = "empty_command"
	ReasonCommandTooLarge       Reason = "command_too_large"
	ReasonBlockedMetadataAccess Reason = "blocked_metadata_access"
	ReasonPathEscape            Reason = "path_escape"
	ReasonContentTooLarge       Reason = "content_too_large"
	ReasonConcurrencyLimit      Reason = "concurrency_limit"
	ReasonRateLimited           Reason = "rate_limited"
	ReasonSessionEnded          Reason = "session_ended"
	ReasonProvisionFailed       Reason = "provision_failed"
	ReasonProvisionRateLimited  Reason = "provision_rate_limited"
	ReasonProvisionConflict     Reason = "provision_conflict"
	ReasonWorkspaceUnwritable   Reason = "workspace_unwritable"
	ReasonExecutionFailed       Reason = "execution_failed"
	ReasonCrashLoop             Reason = "crash_loop"
	ReasonNotFound              Reason = "not_found"
	ReasonWorkerUnavailable     Reason = "worker_unavailable"
	ReasonError                 Reason = "error"
)

// ReasonInfo is what is fixed about a reason.
type ReasonInfo struct {
	// Reason is the code.
	Reason Reason
	// Sentence says it to a person.
	Sentence string
	// Retryable means: publish again with a new job id; nothing ran.
	Retryable bool
	// Authorization marks denials that are about permission, the only ones that raise an authorisation audit event.
	Authorization bool
}

var reasons = []ReasonInfo{
	{ReasonKillSwitchOff, "Running code is switched off.", false, false},
	{ReasonMisconfigured, "Running code is on, but a setting that it needs is missing or wrong; the operators have been told.", false, false},
	{ReasonInvalidRequest, "The request is not valid.", false, false},
	{ReasonAppAdminRequired, "Only an administrator of the application may do this.", false, true},
	{ReasonNoDriveAccess, "You have no access to this drive.", false, true},
	{ReasonInsufficientRole, "Your role does not allow running code here.", false, true},
	{ReasonNoAgentAccess, "You have no access to this agent.", false, true},
	{ReasonPageNotFound, "The page does not exist.", false, true},
	{ReasonNoEditAccess, "You may read this page, but not edit it.", false, true},
	{ReasonDriveNotFound, "The drive does not exist.", false, true},
	{ReasonAuthorizationExpired, "The permission for this request has expired; ask again.", true, true},
	{ReasonEmptyCommand, "The command is empty.", false, false},
	{ReasonCommandTooLarge, "The command is larger than 16 KiB; put it into a file and run that.", false, false},
	{ReasonBlockedMetadataAccess, "The command names a cloud metadata address, which is blocked.", false, false},
	{ReasonPathEscape, "The path leads outside /workspace.", false, false},
	{ReasonContentTooLarge, "The content is larger than one message may be.", false, false},
	{ReasonConcurrencyLimit, "As many commands as your plan allows are running already.", true, false},
	{ReasonRateLimited, "Too many requests for now.", true, false},
	{ReasonSessionEnded, "This session has ended.", false, false},
	{ReasonProvisionFailed, "The sandbox could not be prepared.", true, false},
	{ReasonProvisionRateLimited, "The provider limits how many sandboxes may be created or run; it stayed at its limit for too long.", true, false},
	{ReasonProvisionConflict, "Another request was changing this sandbox for too long.", true, false},
	{ReasonWorkspaceUnwritable, "The sandbox's /workspace cannot be written.", false, false},
	{ReasonExecutionFailed, "The sandbox refused to start the command.", true, false},
	{ReasonCrashLoop, "The workers that took this request died one after another.", false, false},
	{ReasonNotFound, "There is nothing by that name.", false, false},
	{ReasonWorkerUnavailable, "A part that is needed to run this does not answer.", true, false},
	{ReasonError, "Something unexpected went wrong; the operators have been told.", false, false},
}

var reasonIndex = func() map[Reason]ReasonInfo {
	m := make(map[Reason]ReasonInfo, len(reasons))
	for _, r := range reasons {
		m[r.Reason] = r
	}
	return m
}()

// Reasons lists the closed set with what is fixed about each. The caller may keep the slice.
func Reasons() []ReasonInfo { return append([]ReasonInfo(nil), reasons...) }

// Valid reports whether r is one of the closed set.
func (r Reason) Valid() bool { _, ok := reasonIndex[r]; return ok }

// Info returns what is fixed about r; for an unknown code that of ReasonError.
func (r Reason) Info() ReasonInfo {
	if info, ok := reasonIndex[r]; ok {
		return info
	}
	return reasonIndex[ReasonError]
}

// Sentence says r to a person.
func (r Reason) Sentence() string { return r.Info().Sentence }

// Retryable reports whether publishing again with a new job id is worth it.
func (r Reason) Retryable() bool { return r.Info().Retryable }
