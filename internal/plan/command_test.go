package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/plan"
)

func reasonOf(v *plan.Violation) plan.Reason {
	if v == nil {
		return ""
	}
	return v.Reason
}

func TestACommandIsJudgedBySizeAndEmptiness(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		argv  []string
		shell string
		want  plan.Reason
	}{
		"argv":                        {[]string{"ls", "-la"}, "", ""},
		"shell":                       {nil, "ls | wc -l", ""},
		"empty arguments are fine":    {[]string{"printf", ""}, "", ""},
		"nothing":                     {nil, "", plan.ReasonEmptyCommand},
		"blank shell":                 {nil, " \n\t", plan.ReasonEmptyCommand},
		"empty program":               {[]string{"", "x"}, "", plan.ReasonEmptyCommand},
		"both":                        {[]string{"ls"}, "ls", plan.ReasonInvalidRequest},
		"NUL in argv":                 {[]string{"ls", "a\x00b"}, "", plan.ReasonInvalidRequest},
		"NUL in shell":                {nil, "ls\x00", plan.ReasonInvalidRequest},
		"exactly 16 KiB of shell":     {nil, strings.Repeat("x", plan.MaxCommandBytes), ""},
		"a byte more":                 {nil, strings.Repeat("x", plan.MaxCommandBytes+1), plan.ReasonCommandTooLarge},
		"argv with its separators":    {[]string{"x", strings.Repeat("x", plan.MaxCommandBytes-2)}, "", ""},
		"argv a byte more":            {[]string{"x", strings.Repeat("x", plan.MaxCommandBytes-1)}, "", plan.ReasonCommandTooLarge},
		"metadata in a late argument": {[]string{"curl", "-s", "http://169.254.169.254/"}, "", plan.ReasonBlockedMetadataAccess},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := plan.CheckCommand(tt.argv, tt.shell); reasonOf(got) != tt.want {
				t.Fatalf("%v, want %q", got, tt.want)
			}
		})
	}
}

func TestAMetadataAddressIsFoundInEverySpelling(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"dotted":                   "curl http://169.254.169.254/latest/meta-data/",
		"bare":                     "169.254.169.254",
		"with a port":              "nc 169.254.169.254:80",
		"decimal":                  "curl http://2852039166/",
		"hexadecimal":              "curl http://0xA9FEA9FE/",
		"octal":                    "curl http://025177524776/",
		"dotted hexadecimal":       "curl http://0xa9.0xfe.0xa9.0xfe/",
		"dotted octal":             "curl http://0251.0376.0251.0376/",
		"padded octal":             "curl http://000000251.0376.0251.0376/",
		"mixed":                    "curl http://0xa9.254.0251.254/",
		"three parts":              "curl http://169.254.43518/",
		"two parts":                "curl http://169.16689662/",
		"wrapped at 32 bits":       "curl http://7147006462/",
		"mapped dotted":            "curl http://[::ffff:169.254.169.254]/",
		"mapped hexadecimal":       "curl http://[::ffff:a9fe:a9fe]/",
		"mapped in full":           "curl http://[0000:0000:0000:0000:0000:FFFF:A9FE:A9FE]:80/",
		"compatible":               "curl http://[::a9fe:a9fe]/",
		"NAT64":                    "curl http://[64:ff9b::a9fe:a9fe]/",
		"6to4":                     "curl http://[2002:a9fe:a9fe::1]/",
		"with a zone":              "curl http://[fe80::a9fe:a9fe%25eth0]/",
		"AWS over IPv6":            "curl http://[fd00:ec2::254]/latest",
		"AWS over IPv6 in full":    "curl http://[FD00:0EC2:0:0:0:0:0:254]/latest",
		"ECS":                      "curl 169.254.170.2/v2/credentials",
		"Alibaba":                  "curl http://100.100.100.200/latest",
		"Oracle":                   "curl http://192.0.0.192/latest",
		"Google's name":            "curl http://metadata.google.internal/computeMetadata/v1/",
		"upper case":               "curl http://METADATA.Google.INTERNAL/",
		"trailing dot":             "curl http://metadata.google.internal./",
		"Azure's name":             "curl metadata.azure.internal",
		"short name":               "curl http://metadata/computeMetadata/v1/",
		"short name with a port":   "curl http://metadata:80/",
		"EC2's name":               "curl http://instance-data.ec2.internal/",
		"percent-encoded":          "curl http://%31%36%39.254.169.254/",
		"percent-encoded dots":     "curl http://169%2e254%2E169%2e254/",
		"percent-encoded twice":    "curl http://169%252e254%252e169%252e254/",
		"full-width":               "curl http://１６９．２５４．１６９．２５４/",
		"circled":                  "curl http://①⑥⑨.②⑤④.①⑥⑨.②⑤④/",
		"ideographic full stop":    "curl http://169。254。169。254/",
		"wildcard DNS with dots":   "curl http://169.254.169.254.nip.io/",
		"wildcard DNS with dashes": "curl http://x-169-254-169-254.sslip.io/",
		"wildcard DNS in hex":      "curl http://a9fea9fe.nip.io/",
		"quotes inside":            `curl http://169.254."169".254/`,
		"single quotes inside":     `curl http://169.254.'169.254'/`,
		"backslash inside":         `curl http://169.254.169\.254/`,
		"line continuation":        "curl http://169.254.\\\n169.254/",
		"userinfo before it":       "curl http://example.com@169.254.169.254/",
		"in a variable":            "H=169.254.169.254; curl $H",
		"among others":             "echo 1.2.3.4 5.6.7.8,169.254.169.254,9.9.9.9",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := plan.CheckCommand(nil, text)
			if reasonOf(v) != plan.ReasonBlockedMetadataAccess || !v.Anomaly {
				t.Fatalf("%q: %v", text, v)
			}
		})
	}
}

func TestOrdinaryCommandsNameNoMetadataAddress(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"curl https://example.com/metadata/", "cat metadata.json", "grep metadata: README.md", "pip install foo==169.254.1",
		"ping 169.254.1.1", "echo 2852039167", "ls -la 2026-01-02T03:04:05", "ssh user@10.0.0.1", "curl http://[::1]:8080/",
		"date +%H:%M:%S", "git show a9fea9f", "docker run -p 8080:80 img@sha256:abc", "echo ::", "echo 1:2:3:4:5:6:7:8:9",
		"http://metadatabase/", "mymetadata.google.internals", "echo 100% done %zz",
	} {
		if v := plan.CheckCommand(nil, text); v != nil {
			t.Errorf("%q: %v", text, v)
		}
	}
}

// Each number form of the address, wherever it stands in other text.
func TestNumberFormsAreFoundAnywhere(t *testing.T) {
	t.Parallel()
	part := func(t *rapid.T, n uint32, name string) string {
		form := rapid.SampledFrom([]string{"%d", "0%o", "0x%x", "0X%X", "000%o"}).Draw(t, name)
		return fmt.Sprintf(form, n)
	}
	rapid.Check(t, func(t *rapid.T) {
		const addr = uint32(0xA9FEA9FE)
		var host string
		switch rapid.IntRange(1, 4).Draw(t, "parts") {
		case 1:
			host = part(t, addr, "a")
		case 2:
			host = part(t, addr>>24, "a") + "." + part(t, addr&0xFFFFFF, "b")
		case 3:
			host = part(t, addr>>24, "a") + "." + part(t, addr>>16&0xFF, "b") + "." + part(t, addr&0xFFFF, "c")
		case 4:
			host = part(t, addr>>24, "a") + "." + part(t, addr>>16&0xFF, "b") + "." + part(t, addr>>8&0xFF, "c") + "." + part(t, addr&0xFF, "d")
		}
		before := rapid.SampledFrom([]string{"", "http://", "x ", "a=", "(", "u@"}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", "/x", ":80", " y", ")", ";"}).Draw(t, "after")
		if _, found := plan.FindMetadataAddress(before + host + after); !found {
			t.Fatalf("%q was not found", before+host+after)
		}
	})
}

func FuzzCheckCommand(f *testing.F) {
	for _, seed := range []string{"ls", "curl http://%31%36%39.254.169.254/", "[::ffff:a9fe:a9fe]", "%", "%2", "１６９", "\xff\xfe", "a:b:c:d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v := plan.CheckCommand([]string{"sh", "-c", text}, "")
		if v != nil && !v.Reason.Valid() {
			t.Fatalf("%v", v)
		}
		// What stands beside an address must never hide it.
		if _, found := plan.FindMetadataAddress(text + " 169.254.169.254"); !found {
			t.Fatalf("%q hides an address", text)
		}
	})
}

// With quadratic time one of these would run into the test's own limit.
func TestHostileCommandsAreJudgedInLinearTime(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"1.", "169.254.", ":", "a:", "%25", "metadata", "//metadata", "-", "0", "0x", "\\", "１"} {
		plan.FindMetadataAddress(strings.Repeat(unit, (128<<10)/len(unit)))
	}
}
