// A network of switches in ns-3: its links, devices and events, our switches' rules, and callbacks to
// hosts elsewhere. Packets carry their ports, as `Network.path` lists them. Also ns-3's own TCP.
// One simulation at a time in a process: ns-3 has one clock.

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

using namespace ns3;

namespace {

using Callee = void (*)(int64_t id, int64_t now_ps, int64_t marked);

enum Rule : int64_t { FIFO, SHORTEST, PRIORITIES, TRIMMING };

constexpr uint32_t PPP = 2; // bytes that the device adds, within those of the frame
constexpr int N_QUEUES = 8;
constexpr int MOST_PORTS = 6; // of a path: through the cores of a fat-tree
constexpr int64_t NEVER = std::numeric_limits<int64_t>::max();
constexpr uint32_t CONTROL = 64 + 20; // bytes of a packet without values, and of a trimmed one

// What the hosts' own packets carry beside their length.
class Way : public Tag {
  public:
	struct Fields {
		int64_t id;
		std::array<int32_t, MOST_PORTS> ports;
		int32_t n_ports, hop, remaining;
		uint8_t queue, important, marked, first, trimmed;
	} f{};

	static TypeId GetTypeId() {
		static TypeId tid = TypeId("gradnic::Way").SetParent<Tag>().AddConstructor<Way>();
		return tid;
	}
	TypeId GetInstanceTypeId() const override { return GetTypeId(); }
	uint32_t GetSerializedSize() const override { return sizeof f; }
	void Serialize(TagBuffer i) const override {
		i.Write(reinterpret_cast<const uint8_t *>(&f), sizeof f);
	}
	void Deserialize(TagBuffer i) override { i.Read(reinterpret_cast<uint8_t *>(&f), sizeof f); }
	void Print(std::ostream &os) const override { os << f.id; }
};

Way::Fields way_of(Ptr<const Packet> packet) {
	Way way;
	packet->PeekPacketTag(way);
	return way.f;
}

struct Limits {
	Rule rule;
	int64_t limit;
	std::array<int64_t, N_QUEUES> thresholds;
	int64_t heads;

	explicit Limits(const int64_t *row = nullptr) : rule(FIFO), limit(0), thresholds{}, heads(0) {
		if (!row)
			return;
		rule = static_cast<Rule>(row[0]);
		limit = row[1];
		std::copy(row + 2, row + 2 + N_QUEUES, thresholds.begin());
		heads = row[2 + N_QUEUES];
	}
};

// A port's queue: `Fifo`, `Shortest`, `Priorities` or `Trimming` of fabric.py, by the same words.
class Port : public Queue<Packet> {
  public:
	Limits limits;
	bool is_host = false; // never drops; what is to go first does
	std::array<int64_t, N_QUEUES> depths{};
	int64_t n_cut = 0;

	Port() { SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, 1u << 30)); } // `limits` decides

	static TypeId GetTypeId() {
		static TypeId tid = TypeId("gradnic::Port").SetParent<Queue<Packet>>().AddConstructor<Port>();
		return tid;
	}

	bool Enqueue(Ptr<Packet> packet) override {
		Way::Fields f = way_of(packet);
		if (!is_host && limits.rule == SHORTEST)
			return enqueue_shortest(packet, f.remaining);
		if (!is_host && (f.trimmed || !admit(f)) && !cut(packet, f))
			return false;
		if (f.marked || f.trimmed) {
			Way way;
			way.f = f;
			packet->ReplacePacketTag(way);
		}
		int rank = rank_of(f);
		count(rank)++;
		auto at = GetContainer().end();
		while (at != GetContainer().begin() && rank_of(way_of(*std::prev(at))) > rank)
			--at;
		return DoEnqueue(at, packet);
	}

	Ptr<Packet> Dequeue() override {
		if (GetContainer().empty())
			return nullptr;
		count(rank_of(way_of(GetContainer().front())))--;
		return DoDequeue(GetContainer().begin());
	}
	Ptr<Packet> Remove() override { return Dequeue(); }
	Ptr<const Packet> Peek() const override { return DoPeek(GetContainer().begin()); }

  private:
	int rank_of(const Way::Fields &f) const {
		if (is_host)
			return !f.first;
		return f.trimmed ? -1 : limits.rule >= PRIORITIES ? f.queue : 0;
	}
	int64_t &count(int rank) { return rank < 0 ? n_cut : depths[rank]; }

	bool cut(Ptr<Packet> packet, Way::Fields &f) {
		if (limits.rule != TRIMMING || n_cut >= limits.heads)
			return false;
		if (f.trimmed)
			return true;
		if (packet->GetSize() <= CONTROL)
			return false;
		packet->RemoveAtEnd(packet->GetSize() - CONTROL);
		f.trimmed = 1;
		return true;
	}

	bool admit(Way::Fields &f) {
		int rank = rank_of(f);
		int64_t depth = depths[rank] + 1;
		if (depth > limits.limit)
			return false;
		if (depth > limits.thresholds[rank]) {
			if (limits.rule >= PRIORITIES && !f.important)
				return false; // Not-ECT
			f.marked = 1;
		}
		return true;
	}

	bool enqueue_shortest(Ptr<Packet> packet, int32_t remaining) {
		auto at = GetContainer().end();
		while (at != GetContainer().begin() && way_of(*std::prev(at)).remaining > remaining)
			--at;
		DoEnqueue(at, packet);
		depths[0]++;
		if (static_cast<int64_t>(GetContainer().size()) <= limits.limit)
			return true;
		depths[0]--;
		return DoRemove(std::prev(GetContainer().end())) != packet;
	}
};

struct Net {
	NodeContainer nodes;
	std::vector<Ptr<PointToPointNetDevice>> devices; // by port
	std::vector<Ptr<Port>> ports;
	std::vector<int64_t> fell; // by port, picoseconds: from then on it loses what it gets
	int64_t hop_ps, dropped = 0;
	Callee deliver, wake;
};

Net *net;

void enter(Ptr<Packet> packet, const Way::Fields &f) {
	int32_t port = f.ports[f.hop];
	Ptr<PointToPointNetDevice> device = net->devices[port];
	if (net->fell[port] <= Simulator::Now().GetPicoSeconds() ||
	    !device->Send(packet, device->GetBroadcast(), 0x0800))
		net->dropped++;
}

bool arrived(Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t, const Address &) {
	Way way;
	packet->PeekPacketTag(way);
	if (net->fell[way.f.ports[way.f.hop]] <= Simulator::Now().GetPicoSeconds() - net->hop_ps) {
		net->dropped++; // the link fell before all of it had left
		return true;
	}
	if (++way.f.hop == way.f.n_ports) {
		net->deliver(way.f.id, Simulator::Now().GetPicoSeconds(), way.f.marked | way.f.trimmed << 1);
		return true;
	}
	Ptr<Packet> copy = packet->Copy();
	copy->ReplacePacketTag(way);
	enter(copy, way.f);
	return true;
}

void wake(int64_t id) { net->wake(id, Simulator::Now().GetPicoSeconds(), 0); }

using Pair = std::array<Ptr<PointToPointNetDevice>, 2>;

Pair link(Ptr<Node> a, Ptr<Node> b, double gbps, int64_t hop_ps) {
	auto channel = CreateObject<PointToPointChannel>();
	channel->SetAttribute("Delay", TimeValue(PicoSeconds(hop_ps)));
	Pair ends;
	Ptr<Node> nodes[] = {a, b};
	for (int i = 0; i < 2; i++) {
		ends[i] = CreateObject<PointToPointNetDevice>();
		ends[i]->SetAddress(Mac48Address::Allocate());
		ends[i]->SetDataRate(DataRate(static_cast<uint64_t>(gbps * 1e9)));
		nodes[i]->AddDevice(ends[i]);
		ends[i]->Attach(channel);
	}
	return ends;
}

// A flow of ns-3's TCP: all its bytes are handed over when the time comes.
struct Stream {
	Ptr<Socket> socket;
	int64_t left, wanted, done = -1;
};

std::vector<Stream> streams;

void fill(Ptr<Socket> socket, uint32_t) {
	for (Stream &s : streams) {
		if (s.socket != socket)
			continue;
		while (s.left > 0) {
			int64_t room = std::min<int64_t>(s.left, socket->GetTxAvailable());
			if (room <= 0 || socket->Send(Create<Packet>(room)) < 0)
				return;
			s.left -= room;
		}
	}
}

void taken(size_t i, Ptr<const Packet> packet, const Address &) {
	Stream &s = streams[i];
	s.wanted -= packet->GetSize();
	if (s.wanted == 0)
		s.done = Simulator::Now().GetPicoSeconds();
}

} // namespace

extern "C" {

void gn_open() { Time::SetResolution(Time::PS); }

// links: (vertex, vertex, port there, port back) each; vertices and ports: hosts first.
void gn_new(int64_t n_hosts, int64_t n_vertices, int64_t n_links, const int64_t *links, double gbps,
            int64_t hop_ps, const int64_t *limits, Callee deliver, Callee wake) {
	net = new Net;
	net->hop_ps = hop_ps;
	net->deliver = deliver;
	net->wake = wake;
	net->nodes.Create(n_vertices);
	net->devices.resize(2 * n_links);
	net->fell.assign(2 * n_links, NEVER);
	for (const int64_t *row = links; row < links + 4 * n_links; row += 4) {
		Pair ends = link(net->nodes.Get(row[0]), net->nodes.Get(row[1]), gbps, hop_ps);
		net->devices[row[2]] = ends[0];
		net->devices[row[3]] = ends[1];
	}
	for (size_t i = 0; i < net->devices.size(); i++) {
		auto port = CreateObject<Port>();
		port->limits = Limits(limits);
		port->is_host = static_cast<int64_t>(i) < n_hosts;
		net->devices[i]->SetQueue(port);
		net->devices[i]->SetReceiveCallback(MakeCallback(&arrived));
		net->ports.push_back(port);
	}
}

// From now on the port loses what it has, what it is sending, and what it gets.
void gn_fall(int64_t port) {
	net->fell[port] = std::min(net->fell[port], Simulator::Now().GetPicoSeconds());
	while (net->ports[port]->Dequeue())
		net->dropped++;
}

void gn_send(int64_t id, int64_t n_bytes, int64_t n_ports, const int64_t *ports, int64_t queue,
             int64_t important, int64_t remaining, int64_t first) {
	Way way;
	way.f.id = id;
	std::copy(ports, ports + n_ports, way.f.ports.begin());
	way.f.n_ports = n_ports;
	way.f.remaining = remaining;
	way.f.queue = queue;
	way.f.important = important;
	way.f.first = first;
	auto packet = Create<Packet>(n_bytes - PPP);
	packet->AddPacketTag(way);
	enter(packet, way.f);
}

void gn_at(int64_t delay_ps, int64_t id) { Simulator::Schedule(PicoSeconds(delay_ps), &wake, id); }
int64_t gn_dropped() { return net->dropped; }
void gn_run() { Simulator::Run(); }
void gn_stop() { Simulator::Stop(); }

void gn_delete() {
	Simulator::Destroy();
	delete net;
	net = nullptr;
}

// A port's decisions: what[i] < 0 takes a packet out, else one of queue what[i] comes. answers[i]:
// its number, or -1 if there is none; 0 dropped, 1 taken. marks[i]: of the one taken out.
void gn_rule(const int64_t *limits, int64_t n, const int64_t *what, const int64_t *important,
             const int64_t *remaining, int64_t *answers, int64_t *marks) {
	auto port = CreateObject<Port>();
	port->limits = Limits(limits);
	for (int64_t i = 0; i < n; i++) {
		marks[i] = 0;
		if (what[i] < 0) {
			Ptr<Packet> packet = port->Dequeue();
			answers[i] = packet ? way_of(packet).id : -1;
			marks[i] = packet ? way_of(packet).marked | way_of(packet).trimmed << 1 : 0;
			continue;
		}
		Way way;
		way.f.id = i;
		way.f.queue = what[i];
		way.f.important = important[i];
		way.f.remaining = remaining[i];
		auto packet = Create<Packet>(100);
		packet->AddPacketTag(way);
		answers[i] = port->Enqueue(packet);
	}
}

// ns-3's TCP with DCTCP over the same leaf-spine, RED queues that mark above the threshold. flows:
// (source, to, bytes, picoseconds of its start after all have connected) each; seconds[i]: or -1.
void gn_tcp(int64_t n_leaves, int64_t per_leaf, int64_t n_spines, double gbps, int64_t hop_ps,
            int64_t threshold, int64_t limit, int64_t payload, int64_t gap_ps, double min_rto,
            int64_t n_flows, const int64_t *flows, double *seconds) {
	Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpDctcp::GetTypeId()));
	// a mark cuts the window at once, as RFC 8257 says; PRR, ns-3's default, takes a round trip
	Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
	                   TypeIdValue(TcpClassicRecovery::GetTypeId()));
	Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(payload));
	Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
	Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
	Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 24));
	Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 24));
	Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(min_rto)));
	Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MicroSeconds(1)));
	int64_t n_hosts = n_leaves * per_leaf;
	NodeContainer nodes;
	nodes.Create(n_hosts + n_leaves + n_spines);
	InternetStackHelper().Install(nodes);
	TrafficControlHelper red; // beside it the device itself holds one packet
	red.SetRootQueueDisc("ns3::RedQueueDisc", "UseEcn", BooleanValue(true), "UseHardDrop",
	                     BooleanValue(false), "QW", DoubleValue(1), "MinTh",
	                     DoubleValue(threshold - 1), "MaxTh", DoubleValue(threshold - 1), "Gentle",
	                     BooleanValue(false), "MeanPktSize", UintegerValue(payload), "MaxSize",
	                     QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, limit - 1)));
	TrafficControlHelper plain; // a host waits
	plain.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize",
	                       QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, 1 << 20)));
	Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
	std::vector<Ipv4Address> of_host(n_hosts);
	auto join = [&](int64_t a, int64_t b) {
		Pair ends = link(nodes.Get(a), nodes.Get(b), gbps, hop_ps);
		NetDeviceContainer both;
		for (int i = 0; i < 2; i++) {
			auto queue = CreateObject<DropTailQueue<Packet>>();
			queue->SetMaxSize(QueueSize("1p"));
			ends[i]->SetQueue(queue);
			ends[i]->SetInterframeGap(PicoSeconds(gap_ps));
			auto face = CreateObject<NetDeviceQueueInterface>();
			face->GetTxQueue(0)->ConnectQueueTraces(queue);
			ends[i]->AggregateObject(face);
			both.Add(ends[i]);
			bool is_host = i == 0 && a < n_hosts;
			(is_host ? plain : red).Install(ends[i]);
		}
		Ipv4InterfaceContainer faces = addresses.Assign(both);
		addresses.NewNetwork();
		if (a < n_hosts)
			of_host[a] = faces.GetAddress(0);
	};
	for (int64_t leaf = 0; leaf < n_leaves; leaf++) {
		for (int64_t host = leaf * per_leaf; host < (leaf + 1) * per_leaf; host++)
			join(host, n_hosts + leaf);
		for (int64_t spine = 0; spine < n_spines; spine++)
			join(n_hosts + leaf, n_hosts + n_leaves + spine);
	}
	Ipv4GlobalRoutingHelper::PopulateRoutingTables();
	streams.assign(n_flows, {});
	Time begin = MilliSeconds(1);
	for (int64_t i = 0; i < n_flows; i++) {
		const int64_t *flow = flows + 4 * i;
		Time start = begin + PicoSeconds(flow[3]);
		InetSocketAddress to(of_host[flow[1]], 1000 + i);
		PacketSinkHelper sink("ns3::TcpSocketFactory", to);
		ApplicationContainer sinks = sink.Install(nodes.Get(flow[1]));
		sinks.Start(Seconds(0));
		sinks.Get(0)->TraceConnectWithoutContext("Rx", MakeBoundCallback(&taken, size_t(i)));
		streams[i].left = streams[i].wanted = flow[2];
		streams[i].socket =
			Socket::CreateSocket(nodes.Get(flow[0]), TcpSocketFactory::GetTypeId());
		Ptr<Socket> socket = streams[i].socket;
		Simulator::Schedule(MicroSeconds(1), [socket, to] { socket->Connect(to); });
		Simulator::Schedule(start, [socket] {
			socket->SetSendCallback(MakeCallback(&fill));
			fill(socket, 0);
		});
	}
	Simulator::Stop(Seconds(1));
	Simulator::Run();
	for (int64_t i = 0; i < n_flows; i++)
		seconds[i] = streams[i].done < 0 ? -1 : 1e-12 * (streams[i].done - begin.GetPicoSeconds() - flows[4 * i + 3]);
	streams.clear();
	Simulator::Destroy();
}
}
