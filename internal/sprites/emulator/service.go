package emulator

type serviceSpec struct{}
type service struct{}

func (*service) begin() {}
func (*service) lost()  {}

func (sp *sprite) bootServices() []*service { return nil }
