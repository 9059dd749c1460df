package lease

// keys builds every key of one Manager from the prefix with its hash tag. What is stored in another form than before
// gets another name: ":sys" and ":l:" were hashes, which a string would break for workers that still keep them. The
// sets and the lines never changed, so that workers of both forms count against one limit.
type keys struct{ prefix string }

func (k keys) sys() string                { return k.prefix + ":s" }
func (k keys) record(id string) string    { return k.prefix + ":r:" + id }
func (k keys) nonce(n string) string      { return k.prefix + ":a:" + n }
func (k keys) parked(t string) string     { return k.prefix + ":p:" + escape(t) }
func (k keys) scope(s string) string      { return k.prefix + ":z:" + s }
func (k keys) line(s string) string       { return k.prefix + ":w:" + s }
func (k keys) claim(call string) string   { return k.prefix + ":k:" + call }
func (k keys) signals() string            { return k.prefix + ":signals" }
func (k keys) gates() string              { return k.prefix + ":gates" }
func (k keys) gate(o string) string       { return k.prefix + ":gate:" + escape(o) }
func (k keys) share(o, t string) string   { return k.prefix + ":share:" + escape(o) + ":" + escape(t) }
func (k keys) budget(t, u string) string  { return k.prefix + ":b:" + escape(t) + ":" + escape(u) }
func (k keys) selftest(own string) string { return k.prefix + ":test:" + own }

// scoped appends the sets, then the lines, of scopes: the order every script
// that names both expects.
func (k keys) scoped(head []string, scopes []string) []string {
	for _, s := range scopes {
		head = append(head, k.scope(s))
	}
	for _, s := range scopes {
		head = append(head, k.line(s))
	}
	return head
}
