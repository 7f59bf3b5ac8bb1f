from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0013_incident_worst'),
    ]

    operations = [
        migrations.AddField(
            model_name='incident',
            name='began_at',
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='transition',
            index=models.Index(fields=['cluster', 'agent', '-at', '-id'], name='transition_by_agent'),
        ),
        migrations.AddIndex(
            model_name='instancetransition',
            index=models.Index(fields=['cluster', 'instance', '-at', '-id'], name='instance_turn_by_instance'),
        ),
    ]
