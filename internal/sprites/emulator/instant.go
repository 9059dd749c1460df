package emulator

func (s *session) startInstant(spec) {}
