"""Labels of permissions and states in Django's metadata. Changes nothing in the database."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0019_moments'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='access',
            options={'default_permissions': (), 'managed': False, 'permissions': (('view_fleet', 'See the fleet: map, lists, agents, instances'), ('view_metrics', 'Read the metrics of the console'), ('view_audit', 'Read the audit log'), ('act_on_fleet', 'Act on the fleet: reconnect campaigns, drains, silences'), ('change_config', 'Change networking config and policies'), ('manage_access', 'Manage users, roles and all API tokens'))},
        ),
        migrations.AlterField(
            model_name='transition',
            name='new',
            field=models.CharField(choices=[('unknown', 'unknown'), ('retired', 'retired'), ('never', 'never connected'), ('stranded', 'stranded'), ('offline', 'offline'), ('at_risk', 'at risk'), ('working', 'reconnecting'), ('degraded', 'degraded'), ('excess', 'excess tunnels'), ('healthy', 'healthy')], max_length=16),
        ),
        migrations.AlterField(
            model_name='transition',
            name='old',
            field=models.CharField(choices=[('unknown', 'unknown'), ('retired', 'retired'), ('never', 'never connected'), ('stranded', 'stranded'), ('offline', 'offline'), ('at_risk', 'at risk'), ('working', 'reconnecting'), ('degraded', 'degraded'), ('excess', 'excess tunnels'), ('healthy', 'healthy')], max_length=16),
        ),
    ]
