package sprites

// Class says what kind of failure an [Error] is. Behaviour depends on it alone.
type Class string

// The classes. The set is closed.
const (
	ClassRateLimited     Class = "rate_limited"     // 429: too many requests or creations; wait RetryAfter
	ClassConcurrentLimit Class = "concurrent_limit" // 429: too many running Sprites in the organisation
	ClassConflict        Class = "conflict"         // 409: the name exists
	ClassNotFound        Class = "not_found"        // 404 or 410, and nothing else: gone
	ClassUnauthorized    Class = "unauthorized"     // 401, 403: the token; never retried, an operator must act
	ClassInvalid         Class = "invalid"          // the request was refused as malformed, here or there
	ClassUnavailable     Class = "unavailable"      // 5xx, an answer that is no answer, or a closed gate
	ClassTimeout         Class = "timeout"          // no answer within the deadline
	ClassCanceled        Class = "canceled"         // the caller gave up
	ClassTransport       Class = "transport"        // DNS, TCP, TLS, a dropped connection
)

// Classes returns every class, in the order they are declared.
func Classes() []Class {
	return []Class{
		ClassRateLimited, ClassConcurrentLimit, ClassConflict, ClassNotFound, ClassUnauthorized, ClassInvalid,
		ClassUnavailable, ClassTimeout, ClassCanceled, ClassTransport,
	}
}
